"""Version of a model, loaded: its signatures, and whom they may answer."""

import json
import os
import pathlib
import re
from collections.abc import (
  Collection,
  Hashable,
  Mapping,
)
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import meta_graph_pb2

from tff_algos.core import errors
from tff_algos.export import manifest, signature_defs, warm_up
from tff_algos.features import spec as spec_lib

DEFAULT_SIGNATURE = 'serving_default'

# Inputs of signatures that tell whose model is asked for.
_CLIENT_ID = 'client_id'
_EXAMPLES = 'inputs'
_ASSERTION = re.compile(r'assertion failed: \[(.*)\]$', re.MULTILINE)
# TensorFlow's text for a client whose record is behind the end of the file.
_NO_RECORD = 'Dataset was empty'
# The text of an operation stands before the name of its node.
_OPERATION = re.compile(r'^(.*)\n\s*\[\[\{\{node', re.MULTILINE)
_FUNCTION_NODE = re.compile(r'\{\{function_node [^}]*\}\}\s*')


class Identity(NamedTuple):
  """What changes in a folder if a version is exported again.

  It also changes when the manifest of a copied bundle arrives; not if another
  file is added, or the folder is touched.

  Attributes:
    inode: Inode of the folder.
    graph_time: Modification time of the graph, in nanoseconds.
    manifest_time: Modification time of `bundle.json`; None without it.
  """

  inode: int
  graph_time: int
  manifest_time: int | None


class ServedModel:
  """One loaded version of one model.

  Attributes:
    name: The model's name.
    version: Its version.
    folder: Its folder.
    signature_defs: name -> SignatureDef, as they stand in the SavedModel.
    identity: `folder_identity` of the loaded folder.
    has_manifest: Whether it was loaded with a `bundle.json`; else it is of
      another program, or half copied, and its clients are unknown.
    raw_signatures: Signatures of raw columns, which check the values that they
      get; NaN is a missing number.
    numbers: Raw columns of float32.
    client_ids: Clients whose personalized models these are.
    only_client: The only client that may be asked for; None for all.
    row_wise: Signatures each row of whose outputs depends on that row of the
      inputs alone, of bundles of this library.
  """

  def __init__(
    self,
    name: str,
    version: int,
    folder: pathlib.Path,
    verified: Collection[Identity] = (),
  ):
    """Loads a version.

    Args:
      name: The model's name.
      version: The version.
      folder: Its folder.
      verified: Identities of folders whose checksums were compared before.

    Raises:
      ExportError: If a file is missing or damaged.
    """
    self.name = name
    self.version = version
    self.folder = folder
    self.identity = folder_identity(folder)
    self.has_manifest = self.identity.manifest_time is not None
    facts: dict[str, Any] = {}
    if self.has_manifest:
      if self.identity not in verified:
        manifest.verify_files(folder)
      facts = manifest.read_manifest(folder)
    self.only_client: str | None = None
    ids = folder / manifest.EXTRA_FOLDER / manifest.CLIENT_IDS_FILE
    self.client_ids = tuple(json.loads(ids.read_text())) if ids.exists() else ()
    self.raw_signatures = frozenset(facts.get('raw_signatures', ()))
    self.numbers = _number_columns(facts)
    self.signature_defs = signature_defs.read(folder)
    self.row_wise = frozenset(
      name
      for name, signature in self.signature_defs.items()
      if 'kind' in facts and _has_rows(signature)
    )
    self._loaded = tf.saved_model.load(os.fspath(folder))

  @property
  def key(self) -> Hashable:
    """Returns what two views of the same loaded model share."""
    return id(self._loaded)

  def warm_up(self) -> None:
    """Runs the bundle's warm-up requests, if it has any."""
    warm_up.run(self.folder, self._loaded.signatures)

  def signature(self, name: str) -> meta_graph_pb2.SignatureDef:
    """Returns a signature's definition.

    Raises:
      RequestError: (404) If there is no such signature.
    """
    if name not in self._loaded.signatures:
      raise errors.RequestError(
        f'model {self.name!r} has no signature {errors.shorten(repr(name))}; '
        f'it has {", ".join(sorted(self._loaded.signatures))}',
        status=404,
      )
    return self.signature_defs[name]

  def predict(
    self, signature_name: str, inputs: Mapping[str, np.ndarray]
  ) -> dict[str, np.ndarray]:
    """Returns a signature's outputs for inputs that fit its definition.

    Raises:
      RequestError: As of `run`; 403 for a client that may not be asked for.
    """
    self.check_client(inputs)
    return self.run(signature_name, inputs)

  def run(
    self, signature_name: str, inputs: Mapping[str, np.ndarray]
  ) -> dict[str, np.ndarray]:
    """Returns a signature's outputs, for any client.

    Raises:
      RequestError: If the model rejects the values: 404 for an unknown client,
        else 400; 413 if they do not fit in memory; 500 if the state of a client
        cannot be read.
    """
    function = self._loaded.signatures[signature_name]
    try:
      outputs = function(**{k: tf.constant(v) for k, v in inputs.items()})
    except (tf.errors.DataLossError, tf.errors.NotFoundError) as error:
      raise self._unreadable(error) from error
    except tf.errors.InvalidArgumentError as error:
      if _NO_RECORD in error.message:
        raise self._unreadable(error) from error
      text = _refusal_text(error.message)
      is_unknown = text.startswith(manifest.UNKNOWN_CLIENT_TEXT)
      status = 404 if is_unknown else 400
      raise errors.RequestError(text, status) from error
    except tf.errors.ResourceExhaustedError as error:
      raise errors.RequestError(
        'the batch does not fit in memory; send fewer rows at once', 413
      ) from error
    return {name: outputs[name].numpy() for name in sorted(outputs)}

  def _unreadable(self, error: tf.errors.OpError) -> errors.RequestError:
    """Returns the error for files that changed after they were verified."""
    logging.log_every_n_seconds(
      logging.ERROR,
      'A client state of %s cannot be read (%s): it was removed or damaged '
      'after it was loaded. Restore the folder from a copy, export the models '
      'again, or roll back.',
      10,
      self.folder,
      _refusal_text(error.message),
    )
    return errors.RequestError(
      f'the state of a client cannot be read from version {self.version} of '
      f'model {self.name!r}',
      status=500,
    )

  def clients(self, inputs: Mapping[str, np.ndarray]) -> set[str]:
    """Returns the clients whose models inputs ask for; empty for any client.

    Raises:
      RequestError: If serialized examples are malformed.
    """
    if len(self.client_ids) <= 1:
      return set(self.client_ids)
    asked = inputs.get(_CLIENT_ID)
    if asked is None:
      asked = _clients_of_examples(inputs[_EXAMPLES])
    return {_text(value) for value in asked.flat}

  def check_client(self, inputs: Mapping[str, np.ndarray]) -> None:
    """Raises RequestError (403) for a client that may not be asked for."""
    if self.only_client is None or not self.client_ids:
      return
    if self.clients(inputs) != {self.only_client}:
      raise errors.RequestError(
        f'this token is for the model of client {self.only_client!r} alone',
        status=403,
      )


def check_has_manifest(folder: pathlib.Path) -> None:
  """Raises ExportError if a version has no `bundle.json`, or has gone."""
  if folder_identity(folder).manifest_time is None:
    raise errors.ExportError(
      'it has no bundle.json, which a loaded version of this model has; it may '
      'be half copied'
    )


def folder_identity(folder: pathlib.Path) -> Identity:
  """Returns the identity of a version's folder.

  Raises:
    ExportError: If the folder has gone.
  """
  graph = folder / signature_defs.GRAPH_FILE
  bundle = folder / manifest.EXTRA_FOLDER / manifest.MANIFEST_FILE
  try:
    return Identity(
      folder.stat().st_ino,
      graph.stat().st_mtime_ns,
      bundle.stat().st_mtime_ns if bundle.exists() else None,
    )
  except OSError as error:
    raise errors.ExportError(
      f'{folder} cannot be read: {error.strerror}'
    ) from error


def _clients_of_examples(serialized: np.ndarray) -> np.ndarray:
  """Returns the clients that `tf.train.Example`s name.

  By the parser of the signature: of a feature that is written twice in one
  message, another parser may read another value.
  """
  feature = tf.io.FixedLenFeature([], tf.string)
  try:
    return tf.io.parse_example(
      tf.constant(serialized, tf.string), {_CLIENT_ID: feature}
    )[_CLIENT_ID].numpy()
  except tf.errors.InvalidArgumentError as error:
    raise errors.RequestError(_refusal_text(error.message)) from None


def _text(value: bytes | str) -> str:
  return value if isinstance(value, str) else value.decode(errors='replace')


def _number_columns(facts: Mapping[str, Any]) -> frozenset[str]:
  """Returns the raw columns of float32, by a bundle's manifest."""
  if 'features' not in facts:
    return frozenset()
  spec = spec_lib.FeatureSpec.from_dict(facts['features'])
  others = {
    one.name
    for one in spec.features
    if one.is_text or (one.type == spec_lib.TENSOR and spec.dtype != 'float32')
  }
  return frozenset(facts['raw_columns'].values()) - others


def _has_rows(signature: meta_graph_pb2.SignatureDef) -> bool:
  """Returns whether all inputs and outputs have an axis of any size first."""
  return all(
    info.tensor_shape.dim and info.tensor_shape.dim[0].size == -1
    for infos in (signature.inputs, signature.outputs)
    for info in infos.values()
  )


def _refusal_text(message: str) -> str:
  """Returns the message of the operation that failed in a model's graph."""
  assertion = _ASSERTION.search(message)
  if assertion:
    # TensorFlow escapes quotes in the values of an assertion.
    text = assertion.group(1).replace('\\"', '"').replace("\\'", "'")
    return errors.shorten(text)
  operation = _OPERATION.search(message)
  if operation:
    message = operation.group(1)
  first = _FUNCTION_NODE.sub('', message).strip().partition('\n')[0]
  if first in ('', 'Graph execution error:'):  # A zero byte cut off the rest.
    return 'the inputs are malformed'
  return errors.shorten(first)
