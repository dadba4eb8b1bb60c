"""Model store: discovery, loading and execution of exported SavedModels.

The folder holds one base for each model, `<folder>/<model>/<version>/`, as
`binaries.export` writes it, and perhaps `labels.json` with names for versions.
The newest version serves by default, or those of a canary and its stable one.
While a store is refreshed, a thread loads and warms up what is published or
labelled, and what was there before answers until it is ready; else the next
request loads it.
"""

import contextlib
import copy
import json
import os
import pathlib
import re
import threading
import time
from collections.abc import (
  Collection,
  Generator,
  Hashable,
  Mapping,
  Sequence,
)
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from tff_algos.core import errors
from tff_algos.export import labels as labels_lib
from tff_algos.export import manifest, versions, warm_up
from tff_algos.features import spec as spec_lib
from tff_algos.serving import access, watched

DEFAULT_SIGNATURE = 'serving_default'

_GRAPH_FILE = 'saved_model.pb'
# Delay before a bundle that failed to load, perhaps half copied, is retried.
_RETRY_SECONDS = 10.0
# Inputs of signatures that tell whose model is asked for.
_CLIENT_ID = 'client_id'
_EXAMPLES = 'inputs'
# Versions of a model that are held as requests named them: neither the newest
# nor labelled.
_MAX_NAMED = 2
# As often does TensorFlow Serving look for versions.
_REFRESH_SECONDS = 1.0
_ASSERTION = re.compile(r'assertion failed: \[(.*)\]$', re.MULTILINE)
# TensorFlow's text for a client whose record is behind the end of the file.
_NO_RECORD = 'Dataset was empty'
# The text of an operation stands before the name of its node.
_OPERATION = re.compile(r'^(.*)\n\s*\[\[\{\{node', re.MULTILINE)
_FUNCTION_NODE = re.compile(r'\{\{function_node [^}]*\}\}\s*')
_MAX_TEXT_CHARS = 500


class VersionStatus(NamedTuple):
  """Status of one version on disk.

  Attributes:
    version: Version number.
    state: That of TensorFlow Serving: `'AVAILABLE'` if it answers, `'LOADING'`
      if it is about to, else `'END'`.
    error: Error of loading it; empty if it was loaded, or not tried yet.
  """

  version: int
  state: str
  error: str


class ServedModel:
  """One loaded version of one model.

  Attributes:
    name: The model's name.
    version: Its version.
    signature_defs: name -> SignatureDef, as they stand in the SavedModel.
    identity: `folder_identity` of the loaded folder.
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
    verified: Collection[tuple[int, int]] = (),
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
    self.identity = folder_identity(folder)
    facts: dict[str, Any] = {}
    if (folder / manifest.EXTRA_FOLDER / manifest.MANIFEST_FILE).exists():
      if self.identity not in verified:
        manifest.verify_files(folder)
      facts = manifest.read_manifest(folder)
    self.only_client: str | None = None
    ids = folder / manifest.EXTRA_FOLDER / manifest.CLIENT_IDS_FILE
    self.client_ids = tuple(json.loads(ids.read_text())) if ids.exists() else ()
    self.raw_signatures = frozenset(facts.get('raw_signatures', ()))
    self.numbers = _number_columns(facts)
    self.signature_defs = _read_signature_defs(folder)
    self.row_wise = frozenset(
      name
      for name, signature in self.signature_defs.items()
      if 'kind' in facts and _has_rows(signature)
    )
    self._folder = folder
    self._loaded = tf.saved_model.load(os.fspath(folder))

  @property
  def key(self) -> Hashable:
    """Returns what two views of the same loaded model share."""
    return id(self._loaded)

  def warm_up(self) -> None:
    """Runs the bundle's warm-up requests, if it has any."""
    warm_up.run(self._folder, self._loaded.signatures)

  def signature(self, name: str) -> meta_graph_pb2.SignatureDef:
    """Returns a signature's definition.

    Raises:
      RequestError: (404) If there is no such signature.
    """
    if name not in self._loaded.signatures:
      raise errors.RequestError(
        f'model {self.name!r} has no signature {_shorten(repr(name))}; it has '
        f'{", ".join(sorted(self._loaded.signatures))}',
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
      self._folder,
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


class ModelStore:
  """All models under one folder, loaded on first use.

  Attributes:
    folder: The folder.
    labels: Labels of the versions of each model that has some.
    verified: Identities of folders whose checksums another process compared.
    caller: Who asks.
    version: Version of the model that `get` returned last; None for none.
  """

  def __init__(self, folder: str | os.PathLike[str]):
    self.folder = pathlib.Path(folder)
    self.labels: Mapping[str, labels_lib.Labels] = {}
    self.verified: Collection[tuple[int, int]] = ()
    self.caller = access.Caller()
    self.version: int | None = None
    self._lock = threading.Lock()
    self._loaded: dict[str, dict[int, ServedModel]] = {}
    self._failures: dict[pathlib.Path, tuple[float, str]] = {}
    # Model name and version that requests named, for the thread to load.
    self._wanted: set[tuple[str, int]] = set()
    # Labels that take effect once their versions are loaded.
    self._new_labels: Mapping[str, labels_lib.Labels] = {}
    self._is_refreshed = False

  def seen_by(
    self,
    caller: access.Caller,
    labels: Mapping[str, labels_lib.Labels] | None = None,
    verified: Collection[tuple[int, int]] = (),
  ) -> 'ModelStore':
    """Returns this store for one request.

    Args:
      caller: Who asks. If that is one client, its personalized models answer
        for this client alone, and it is told no names of models, which may be
        those of clients.
      labels: Labels; None for those of this store.
      verified: As the attribute.
    """
    seen = copy.copy(self)
    seen.caller, seen.version, seen.verified = caller, None, verified
    if labels is not None:
      seen.labels = labels
    return seen

  @contextlib.contextmanager
  def refreshed(self) -> Generator[None]:
    """Loads new and labelled versions by a thread while the context lasts.

    Raises:
      UserError: If the labels of versions are damaged.
    """
    stop = threading.Event()
    labels = watched.Watched(
      'version labels',
      [self.folder / labels_lib.LABELS_FILE],
      self._load_labels,
    )
    thread = threading.Thread(
      target=self._refresh, args=(stop, labels), name='refresh', daemon=True
    )
    self._is_refreshed = True
    thread.start()
    try:
      yield
    finally:
      stop.set()
      thread.join()
      self._is_refreshed = False

  def _refresh(
    self, stop: threading.Event, labels: watched.Watched[None]
  ) -> None:
    while not stop.wait(_REFRESH_SECONDS):
      # The log has the versions that cannot be loaded.
      with contextlib.suppress(OSError):
        labels.current()
        self.forget_removed()
        for name in self._names():
          with contextlib.suppress(errors.RequestError):
            self._load_first(name, self._version_folders(name, None))
        # One, so that requests for many cannot keep new versions waiting.
        for name, version in [*self._wanted][:1]:
          self._wanted.discard((name, version))
          with contextlib.suppress(errors.RequestError):
            self._load_first(name, self._version_folders(name, version))

  def forget_removed(self) -> None:
    """Frees the models whose versions are no longer on disk."""
    with self._lock:
      names = self._names()
      for name, loaded in [*self._loaded.items()]:
        found = {}
        if name in names:
          try:
            found = versions.version_folders(self.folder / name)
          except OSError:
            continue  # It is there, and may be read the next time.
        kept = {v: model for v, model in loaded.items() if v in found}
        if not kept:
          del self._loaded[name]
        elif len(kept) < len(loaded):
          self._loaded[name] = kept

  def _load_labels(self) -> None:
    """Takes over the labels of the file once all their versions are loaded."""
    self._new_labels = labels_lib.read(self.folder)
    for name, one in self._new_labels.items():
      for version in {*one.versions.values()}:
        self._load_first(name, self._version_folders(name, version))
    self.labels = self._new_labels

  def load_newest(self) -> None:
    """Loads the newest version of every model.

    Raises:
      UserError: If the folder is missing or holds no model that can be loaded.
    """
    problems = []
    try:
      names = self._names()
    except OSError as error:
      raise errors.UserError(
        f'model folder {self.folder} cannot be read: {error.strerror}. Write '
        f'models there with binaries.export first.'
      ) from error
    for name in names:
      try:
        self.get(name)
      except errors.RequestError as error:
        problems.append(str(error))
    if len(problems) == len(names):
      why = '; '.join(problems) or 'it has no <model>/<version> folders'
      raise errors.UserError(
        f'nothing can be served from {self.folder}: {why}. Write models there '
        f'with binaries.export first.'
      )

  def get(self, name: str, version: int | str | None = None) -> ServedModel:
    """Returns a loaded model.

    Args:
      name: Its name.
      version: Its version, or a label; None for the stable one where there is a
        canary, else for the newest that loads.

    Raises:
      RequestError: (404) If there is no such model, version or label, or it
        cannot be loaded; (503) if a thread has yet to load it.
    """
    if version is None and self.canary(name) is not None:
      version = labels_lib.STABLE
    folders = self._version_folders(name, version)
    if self._is_refreshed:
      for candidate in reversed(folders):
        with contextlib.suppress(errors.ExportError):
          loaded = self._still_loaded(name, candidate, folders[candidate])
          if loaded is not None:
            return self._as_seen(loaded)
      # To load it may take long, which no small request may wait for.
      raise self._wanted_later(name, folders)
    return self._as_seen(self._load_first(name, folders))

  def _wanted_later(
    self, name: str, folders: dict[int, pathlib.Path]
  ) -> errors.RequestError:
    """Lets the thread load a version; returns why it does not answer yet."""
    version = self._newest_loadable(folders)
    self._wanted.add((name, version))
    failures = self._failures.copy()
    if all(folder in failures for folder in folders.values()):
      return _cannot_load(name, [failures[one][1] for one in folders.values()])
    return errors.RequestError(
      f'version {version} of model {name!r} is being loaded; send again later',
      status=503,
    )

  def canary(self, name: str) -> labels_lib.Labels | None:
    """Returns the labels of a model that has a canary; None if it has none."""
    labels = self.labels.get(name)
    if labels is None or labels.canary_share is None:
      return None
    return labels

  def _as_seen(self, model: ServedModel) -> ServedModel:
    self.version = model.version
    if self.caller.client_id is not None:
      model = copy.copy(model)
      model.only_client = self.caller.client_id
    return model

  def _load_first(
    self, name: str, folders: dict[int, pathlib.Path]
  ) -> ServedModel:
    """Returns the newest of these versions that loads."""
    reasons = []
    for candidate in reversed(folders):
      try:
        loaded = self._still_loaded(name, candidate, folders[candidate])
        if loaded is not None:
          return loaded
        # Only requests for models that are not loaded yet wait for the lock.
        with self._lock:
          return self._load(name, candidate, folders[candidate])
      except errors.ExportError as error:
        reasons.append(str(error))
    raise _cannot_load(name, reasons)

  def loaded_identities(self) -> frozenset[tuple[int, int]]:
    """Returns the identities of the folders of all loaded versions."""
    return frozenset(
      model.identity
      for loaded in [*self._loaded.values()]
      for model in loaded.values()
    )

  def newest_loaded(self) -> dict[str, int]:
    """Returns the newest loaded version of each model that has one."""
    return {name: max(loaded) for name, loaded in [*self._loaded.items()]}

  def is_loaded(self, name: str, version: int) -> bool:
    """Returns whether a version is loaded."""
    return version in self._loaded.get(name, {})

  def names(self) -> list[str]:
    """Returns the names of the models on disk.

    Raises:
      RequestError: (403) If the store is restricted to a client.
    """
    if self.caller.client_id is not None:
      raise errors.RequestError(
        'this token may not list the models', status=403
      )
    named = []
    for name in self._names():
      # Such as lost+found, which only root may read.
      with contextlib.suppress(PermissionError):
        named += [name] * bool(versions.version_folders(self.folder / name))
    return named

  def statuses(
    self, name: str, version: int | str | None = None
  ) -> list[VersionStatus]:
    """Returns the state of a model's versions on disk, newest first.

    Raises:
      RequestError: (404) If there is no such model, version or label.
    """
    folders = self._version_folders(name, version)
    coming = {
      self._newest_loadable(self._version_folders(name, None)),
      *self._labelled_versions(name),
      *(wanted for model, wanted in [*self._wanted] if model == name),
    }
    found = []
    for v in reversed(folders):
      error = self._failures.get(folders[v], (0.0, ''))[1]
      state = 'LOADING' if v in coming and not error else 'END'
      with contextlib.suppress(errors.ExportError):
        if self._still_loaded(name, v, folders[v]) is not None:
          state = 'AVAILABLE'
      found.append(VersionStatus(v, state, error))
    return found

  def _newest_loadable(self, folders: dict[int, pathlib.Path]) -> int:
    """Returns the newest version that has not failed to load, or of all."""
    failures = self._failures.copy()
    return max(
      (v for v, folder in folders.items() if folder not in failures),
      default=max(folders),
    )

  def _names(self) -> list[str]:
    with os.scandir(self.folder) as entries:
      return sorted(entry.name for entry in entries if entry.is_dir())

  def _version_folders(
    self, name: str, version: int | str | None
  ) -> dict[int, pathlib.Path]:
    # Untrusted input: the name must be in the listing, never a path.
    names = self._names()
    folders = {}
    if name in names:
      try:
        folders = versions.version_folders(self.folder / name)
      except OSError as error:
        raise errors.RequestError(
          f'the folder of model {_shorten(repr(name))} cannot be read: '
          f'{error.strerror}',
          status=503,
        ) from error
    if not folders:
      others = f'; the models are {_shorten(", ".join(names)) or "none"}'
      raise errors.RequestError(
        f'unknown model {_shorten(repr(name))}'
        f'{others if self.caller.client_id is None else ""}',
        status=404,
      )
    if version is None:
      return folders
    if isinstance(version, str):
      version = self._labelled(name, version)
    if version not in folders:
      raise errors.RequestError(
        f'model {name!r} has no version {_shorten(str(version))}; it has '
        f'{_shorten(", ".join(map(str, folders)))}',
        status=404,
      )
    return {version: folders[version]}

  def _labelled(self, name: str, label: str) -> int:
    labels = self.labels.get(name, labels_lib.Labels()).versions
    if label not in labels:
      raise errors.RequestError(
        f'model {name!r} has no label {_shorten(repr(label))}; it has '
        f'{_shorten(", ".join(labels)) or "none"}',
        status=404,
      )
    return labels[label]

  def _labelled_versions(self, name: str) -> set[int]:
    """Returns the versions with a label, or with one that takes effect soon."""
    return {
      v
      for labels in (self.labels, self._new_labels)
      for v in labels.get(name, labels_lib.Labels()).versions.values()
    }

  def _still_loaded(
    self, name: str, version: int, folder: pathlib.Path
  ) -> ServedModel | None:
    model = self._loaded.get(name, {}).get(version)
    if model is not None and model.identity == folder_identity(folder):
      return model
    return None

  def _load(self, name: str, version: int, folder: pathlib.Path) -> ServedModel:
    model = self._still_loaded(name, version, folder)
    if model is not None:  # Another request loaded it in the meantime.
      return model
    failed_at, reason = self._failures.get(folder, (-np.inf, ''))
    if time.monotonic() - failed_at < _RETRY_SECONDS:
      raise errors.ExportError(reason)
    try:
      model = ServedModel(name, version, folder, self.verified)
      model.warm_up()
    except Exception as error:  # Any broken file can raise anything in TF.
      reason = _shorten(f'{folder} cannot be loaded: {error}')
      logging.error('%s', reason)
      self._failures[folder] = (time.monotonic(), reason)
      raise errors.ExportError(reason) from error
    logging.info('Serving version %d of model %r.', version, name)
    self._failures.pop(folder, None)
    # A new newest version replaces all without a label, and an older one, which
    # a request named, all but the newest and few others.
    before = self._loaded.get(name, {})
    newest = max({*before, version})
    labelled = self._labelled_versions(name)
    others = [v for v in before if v not in labelled and v != newest]
    kept = 0 if version == newest else _MAX_NAMED - 1
    gone = others[: max(0, len(others) - kept)]
    left = {v: one for v, one in before.items() if v not in gone}
    self._loaded[name] = {**left, version: model}
    return model


def folder_identity(folder: pathlib.Path) -> tuple[int, int]:
  """Returns an identity that changes if a version is exported again.

  Not if a file is added to the folder, or it is touched.

  Raises:
    ExportError: If the folder has gone.
  """
  try:
    return folder.stat().st_ino, (folder / _GRAPH_FILE).stat().st_mtime_ns
  except OSError as error:
    raise errors.ExportError(
      f'{folder} cannot be read: {error.strerror}'
    ) from error


def _cannot_load(name: str, reasons: Sequence[str]) -> errors.RequestError:
  return errors.RequestError(
    f'model {name!r} cannot be loaded: {"; ".join(reasons)}', status=404
  )


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


def _read_signature_defs(
  folder: pathlib.Path,
) -> dict[str, meta_graph_pb2.SignatureDef]:
  content = saved_model_pb2.SavedModel()
  content.ParseFromString((folder / _GRAPH_FILE).read_bytes())
  for graph in content.meta_graphs:
    if tf.saved_model.SERVING in graph.meta_info_def.tags:
      return dict(graph.signature_def)
  raise errors.ExportError(f'{folder} has no graph with the tag "serve"')


def _refusal_text(message: str) -> str:
  """Returns the message of the operation that failed in a model's graph."""
  assertion = _ASSERTION.search(message)
  if assertion:
    # TensorFlow escapes quotes in the values of an assertion.
    text = assertion.group(1).replace('\\"', '"').replace("\\'", "'")
    return _shorten(text)
  operation = _OPERATION.search(message)
  if operation:
    message = operation.group(1)
  return _shorten(_FUNCTION_NODE.sub('', message).strip().splitlines()[0])


def _shorten(text: str) -> str:
  if len(text) <= _MAX_TEXT_CHARS:
    return text
  return f'{text[:_MAX_TEXT_CHARS]}...'
