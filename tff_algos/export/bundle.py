"""Atomic export of one SavedModel bundle.

The bundle is built in a hidden sibling folder, loaded again, verified,
and renamed to `<base>/<version>`, which TensorFlow Serving may pick up at any
moment.
"""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import durable, errors, folder_lock
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Leaf
from tff_algos.export import (
  canonical,
  manifest,
  prediction,
  versions,
  warm_up,
)

_TEMPORARY_PREFIX = '.writing-'
# What TensorFlow makes of `errors.OF_DISKS` (its `ErrnoToCode`).
_OF_DISKS = (
  *(tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError),
  *(tf.errors.PermissionDeniedError, tf.errors.AbortedError),
  tf.errors.UnknownError,
)


class Sample(NamedTuple):
  """A prediction that a bundle must reproduce before it is published.

  Attributes:
    signature: Name of the signature.
    inputs: name -> array.
    outputs: name -> output of the model in memory.
  """

  signature: str
  inputs: Mapping[str, np.ndarray]
  outputs: Mapping[str, np.ndarray]


class Bundle(NamedTuple):
  """Content of a bundle.

  Attributes:
    module: Owns every variable and table that the signatures read.
    signatures: name -> `tf.function` with an input signature.
    facts: Description of the content for the manifest, JSON-ready.
    samples: Predictions to compare after loading it again.
    tolerance: Largest difference allowed, `Model.output_tolerance`: a loaded
      graph may sum in another order.
    client_ids: Clients served by id, if any.
    methods: Signature -> TensorFlow Serving's method, if it is not Predict.
    assets: Name of an asset of the module -> writes its file, which is too
      large to be written elsewhere and copied.
  """

  module: tf.Module
  signatures: Mapping[str, Callable[..., Any]]
  facts: Mapping[str, Any]
  samples: tuple[Sample, ...]
  tolerance: float
  client_ids: tuple[str, ...] = ()
  methods: Mapping[str, str] = {}
  assets: Mapping[str, Callable[[pathlib.Path], None]] = {}


def write_bundle(
  base_dir: str | os.PathLike[str],
  bundle: Bundle,
  provenance: manifest.Provenance,
) -> pathlib.Path:
  """Writes a bundle as the next version under `base_dir`.

  Args:
    base_dir: Folder of all versions of one served model; made if missing.
    bundle: Content of the bundle.
    provenance: Config, round and dataset version of the models.

  Returns:
    The folder `<base_dir>/<version>`; the version is one above the highest.

  Raises:
    ExportError: If the predictions of the loaded bundle differ from the model
      in memory.
    InfrastructureError: If the disk is full or may not be written.
    WorkdirBusyError: If another process writes a bundle there.
    No files are left behind.
  """

  def write(folder: pathlib.Path) -> None:
    _save(folder, bundle, provenance)
    _check_reads_back(folder, bundle.samples, bundle.tolerance)

  return write_version(base_dir, write)


def write_version(
  base_dir: str | os.PathLike[str], write: Callable[[pathlib.Path], None]
) -> pathlib.Path:
  """Writes the next version under `base_dir`: all of it, or nothing.

  Args:
    base_dir: Folder of all versions; made if missing.
    write: Makes the folder that it is given, a hidden one, and checks it.

  Returns:
    The folder `<base_dir>/<version>`; the version is one above the highest.

  Raises:
    ExportError: If the folder cannot be written, or `write` raised it.
    InfrastructureError: If the disk is full or may not be written.
    WorkdirBusyError: If another process writes a version there.
    No files are left behind.
  """
  base = pathlib.Path(base_dir)
  try:
    durable.make_folder(base)
    with (
      folder_lock.exclusive(base, versions.busy(base)),
      _temporary_folder(base) as (temporary, version),
    ):
      write(temporary)
      final = base / str(version)
      durable.publish(temporary, final)
  except (OSError, tf.errors.OpError) as error:
    what = f'a bundle cannot be written under {base}: {_reason(error)}. '
    if errors.is_of_disk(error) or isinstance(error, _OF_DISKS):
      raise errors.InfrastructureError(
        f'{what}Free some space or choose another folder; nothing was left '
        'there.'
      ) from error
    raise errors.ExportError(f'{what}Nothing was left there.') from error
  return final


def model_facts(
  algorithm_name: str, model: model_lib.Model
) -> Mapping[str, Any]:
  """Returns the entries of a manifest that describe the model."""
  is_classifier = model.task == model_lib.CLASSIFICATION
  return {
    'algorithm': algorithm_name,
    'model': model.name,
    'task': model.task,
    'input_shape': list(model.input_shape),
    'num_classes': model.num_outputs if is_classifier else None,
    'label_shape': list(model.label_shape),
    'padding_label': model.padding_label,
  }


def variable(value: Leaf) -> tf.Variable:
  """Returns an array as a variable that the bundle stores."""
  return tf.Variable(value, trainable=False)


def signature_function(
  function: Callable[..., Any], *specs: tf.TensorSpec
) -> Callable[..., Any]:
  """Returns a `tf.function` whose arguments have these specs."""
  # Autograph would leave generated files behind if the export were killed.
  return tf.function(function, input_signature=specs, autograph=False)


def concrete_function(
  function: Callable[..., Any], specs: Mapping[str, tf.TensorSpec]
) -> Any:
  """Returns a traced function with inputs of these names."""
  return tf.function(function, autograph=False).get_concrete_function(
    **{
      name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
      for name, spec in specs.items()
    }
  )


def expected_outputs(
  model: model_lib.Model, weights: model_lib.Weights, x: np.ndarray
) -> dict[str, np.ndarray]:
  """Returns the outputs of the model in memory for `x`, by output name.

  Computed in a graph, as in the bundle: there, TensorFlow fuses operations that
  eager mode would round one by one.
  """

  @functools.partial(tf.function, autograph=False)
  def predict(weights, x):
    return prediction.name_outputs(model, model.apply(weights, x))

  inputs = tf.nest.map_structure(tf.convert_to_tensor, (weights, x))
  return _to_arrays(predict.get_concrete_function(*inputs)(*inputs))  # pyright: ignore[reportFunctionMemberAccess]


def _to_arrays(outputs: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
  return {name: np.asarray(value) for name, value in outputs.items()}


@contextlib.contextmanager
def _temporary_folder(
  base: pathlib.Path,
) -> Generator[tuple[pathlib.Path, int]]:
  # The lock is held, so these files were left by a process that was killed.
  for stale in base.glob(f'{_TEMPORARY_PREFIX}*'):
    shutil.rmtree(stale)
  version = max(versions.version_folders(base), default=0) + 1
  temporary = base / f'{_TEMPORARY_PREFIX}{version}'
  try:
    yield temporary, version
  finally:
    if temporary.exists():
      shutil.rmtree(temporary)


def _save(
  folder: pathlib.Path, bundle: Bundle, provenance: manifest.Provenance
) -> None:
  save_signatures(folder, bundle.module, bundle.signatures)
  canonical.canonicalize(folder, bundle.methods)
  for name, write in bundle.assets.items():
    write(folder / manifest.ASSETS_FOLDER / name)
  extra = folder / manifest.EXTRA_FOLDER
  extra.mkdir()
  if bundle.client_ids:
    path = extra / manifest.CLIENT_IDS_FILE
    path.write_text(json.dumps(bundle.client_ids, indent=1) + '\n')
  classes = bundle.facts.get('features', {}).get('classes', ())
  warm_up.write(
    folder,
    [sample.inputs for sample in bundle.samples],
    # A place of padding would be no example.
    class_id=1 if bundle.facts.get('padding_label') == 0 else 0,
    class_name=classes[0] if classes else '',
  )
  facts = {'tensorflow_version': tf.__version__, **bundle.facts}
  manifest.write_manifest(folder, provenance, facts)


def save_signatures(
  folder: pathlib.Path,
  module: tf.Module,
  signatures: Mapping[str, Callable[..., Any]],
) -> None:
  """Writes a SavedModel with these signatures."""
  with _no_bytecode():
    tf.saved_model.save(module, os.fspath(folder), signatures=dict(signatures))


@contextlib.contextmanager
def _no_bytecode() -> Generator[None]:
  """Keeps Python from caching bytecode in the block.

  TensorFlow's saver runs generated code from the folder of temporary files, in
  which its bytecode would stay behind.
  """
  before = sys.dont_write_bytecode
  sys.dont_write_bytecode = True
  try:
    yield
  finally:
    sys.dont_write_bytecode = before


def _check_reads_back(
  folder: pathlib.Path, samples: tuple[Sample, ...], tolerance: float
) -> None:
  manifest.verify_files(folder)
  signatures = tf.saved_model.load(os.fspath(folder)).signatures
  for sample in samples:
    inputs = {name: tf.constant(v) for name, v in sample.inputs.items()}
    outputs = _to_arrays(signatures[sample.signature](**inputs))
    for name, expected in sample.outputs.items():
      what = f'{sample.signature}/{name}'
      check_close(what, outputs[name], expected, tolerance)
  warm_up.run(folder, signatures)


def check_close(
  what: str, actual: np.ndarray, expected: np.ndarray, tolerance: float
) -> None:
  """Raises ExportError if an output differs from the model in memory.

  Args:
    what: Name of the output.
    actual: The output of what was read back.
    expected: That of the model in memory.
    tolerance: Largest difference, relative to the largest output above 1.
  """
  if not np.issubdtype(expected.dtype, np.floating):
    return  # A class id follows from the logits, and may differ where they tie.
  if not np.all(np.isfinite(expected)):
    raise errors.NonFiniteError(
      f'{what} of the model in memory is NaN or infinite on the sample '
      f'inputs. Such a model is not exported; export an earlier round.'
    )
  tolerance *= max(1.0, np.max(np.abs(expected)))
  if actual.shape != expected.shape or not np.allclose(
    actual, expected, rtol=0, atol=tolerance
  ):
    raise errors.ExportError(
      f'{what} of the bundle differs from the model in memory by more than '
      f'{tolerance:g} on the sample inputs; the bundle was removed. Does the '
      f'model depend on anything but its weights and inputs?'
    )


def _reason(error: OSError | tf.errors.OpError) -> str:
  if isinstance(error, OSError):
    return f'{error.strerror or error} ({error.filename or "no file name"})'
  # TensorFlow appends the trace of the graph after the first line.
  return str(error.message).strip().splitlines()[0]
