"""Exported models in Beam: lookup, checks and a RunInference handler."""

import contextlib
import dataclasses
import json
import logging
import pathlib
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging as absl_logging
from apache_beam.ml.inference import base
from apache_beam.utils import shared
from tensorflow.core.protobuf import meta_graph_pb2

from pipelines.engines import failures
from pipelines.publishing import staging as staging_lib
from pipelines.scoring import model_choice
from tff_algos.core import checks, errors
from tff_algos.core.structures import Array
from tff_algos.data import schema as schema_lib
from tff_algos.export import manifest as manifest_lib
from tff_algos.export import versions
from tff_algos.features import spec as spec_lib
from tff_algos.serving import served_model

# Signature -> 'inputs' or 'outputs' -> tensor -> dtype and shape.
Signatures = Mapping[str, Mapping[str, Mapping[str, Any]]]

# Model of a choice -> its folder, as binaries.export writes it.
_FOLDERS = {
  model_choice.PERSONALIZED: 'personalized_models',
  model_choice.CLUSTER: 'cluster_models',
}
# Beam warns at every load that it cannot measure memory where PyTorch is
# absent.
logging.getLogger().addFilter(
  lambda record: 'Resource module is not' not in str(record.msg)
)
_EXPORT = 'Export the models with binaries.export, or mend the path.'


class Bundle(NamedTuple):
  """One exported bundle.

  Attributes:
    model: `model_choice.PERSONALIZED` or `CLUSTER`.
    version: Newest version.
    folder: Folder, as `Staging.share` returns it for workers.
    manifest: Its `bundle.json`.
    sha256: SHA-256 of `bundle.json`, which has the checksums of all other
      files.
  """

  model: str
  version: int
  folder: pathlib.Path
  manifest: Mapping[str, Any]
  sha256: str


def client_ids(
  found: Iterable[Bundle],
  read: Callable[[pathlib.Path], bytes] = pathlib.Path.read_bytes,
) -> frozenset[str]:
  """Returns the clients with a personalized model in one of the bundles."""
  name = pathlib.Path(manifest_lib.EXTRA_FOLDER, manifest_lib.CLIENT_IDS_FILE)
  return frozenset(
    client_id
    for bundle in found
    if bundle.model == model_choice.PERSONALIZED
    for client_id in json.loads(read(bundle.folder / name))
  )


def find(
  export: pathlib.Path,
  config: model_choice.ScoringConfig,
  assignments: Mapping[str, int],
  schema: schema_lib.Schema,
  features: spec_lib.FeatureSpec,
) -> list[Bundle]:
  """Returns the newest bundles of the models that scoring needs.

  Args:
    export: Folder that `binaries.export` wrote to.
    config: Model selection.
    assignments: Clusters assigned to some clients.
    schema: Schema of the examples to score.
    features: Their feature spec.

  Raises:
    ExportError: If a bundle is missing or damaged, does not fit the examples
      or was made for others, or lacks a requested cluster.
  """
  needed = []
  if config.personalized:
    needed.append(model_choice.PERSONALIZED)
  if assignments or config.otherwise != model_choice.REFUSE:
    needed.append(model_choice.CLUSTER)
  if not needed:
    raise errors.ConfigError(
      'no client can be scored: personalized models are disabled, there are '
      f'no assignments, and otherwise={config.otherwise!r}'
    )
  bundles = [_find_newest(export, model) for model in needed]
  for bundle in bundles:
    manifest_lib.verify_files(bundle.folder)
    _check_fits(bundle, schema)
    _check_features(bundle, features)
    if bundle.model == model_choice.CLUSTER:
      _check_clusters(bundle, config, assignments)
  return bundles


def _find_newest(export: pathlib.Path, model: str) -> Bundle:
  base_dir = export / _FOLDERS[model]
  try:
    folders = versions.version_folders(base_dir)
  except OSError as error:
    raise errors.ExportError(
      f'there are no {model} models at {base_dir}: {error.strerror}. {_EXPORT}'
    ) from None
  if not folders:
    raise errors.ExportError(
      f'there is no version of the {model} models in {base_dir}. {_EXPORT}'
    )
  version, folder = max(folders.items())
  manifest = manifest_lib.read_manifest(folder)
  sha256 = manifest_lib.bundle_sha256(folder)
  return Bundle(model, version, folder, manifest, sha256)


def _check_fits(bundle: Bundle, schema: schema_lib.Schema) -> None:
  """Raises ExportError unless a bundle fits examples of this schema."""
  expected = {
    'kind': _FOLDERS[bundle.model],
    'input_shape': list(schema.x_shape),
    'task': schema.task,
    'num_classes': schema.num_classes or None,
    'label_shape': list(schema.y_shape),
  }
  for name, value in expected.items():
    if bundle.manifest.get(name, []) != value:
      raise errors.ExportError(
        f'{bundle.folder} does not go with the dataset: its {name} is '
        f'{bundle.manifest.get(name)!r}, the dataset needs {value!r}. Was it '
        'exported from a run on another dataset?'
      )


def _check_features(bundle: Bundle, spec: spec_lib.FeatureSpec) -> None:
  """Raises ExportError unless a bundle was made for such raw data.

  Examples of another scale or vocabulary have the same shape, and would be
  scored wrong.
  """
  if 'features' not in bundle.manifest:
    absl_logging.warning(
      '%s was exported without a feature spec: whether its inputs were encoded '
      'as those of the dataset is not known. Export it with one to have it '
      'checked.',
      bundle.folder,
    )
    return
  found = spec_lib.FeatureSpec.from_dict(bundle.manifest['features'])
  if not spec.label:  # Data without labels, to be scored.
    spec = dataclasses.replace(spec, label=found.label, unit=found.unit)
  difference = found.difference(spec)
  if difference is not None:
    raise errors.ExportError(
      f'{bundle.folder} does not go with the dataset: its raw columns or their '
      f'encoding (here) differ from those of the dataset (there) in '
      f'{difference}. Build the dataset with the fitted values of the one that '
      'the model was trained on (dataset.fitted_from), or train on this one.'
    )


def _check_clusters(
  bundle: Bundle,
  config: model_choice.ScoringConfig,
  assignments: Mapping[str, int],
) -> None:
  """Raises ExportError if the bundle lacks a requested cluster."""
  num_clusters = bundle.manifest['num_clusters']
  named = {
    f'the assignment of client {client_id!r}': cluster_id
    for client_id, cluster_id in assignments.items()
  }
  if config.default_cluster is not None:
    named[f'otherwise={config.otherwise!r}'] = config.default_cluster
  for who, cluster_id in named.items():
    if cluster_id >= num_clusters:
      raise errors.ExportError(
        f'{who} names cluster {cluster_id}, but {bundle.folder} has '
        f'{num_clusters} clusters: 0 to {num_clusters - 1}'
      )


class Request(NamedTuple):
  """The examples of one client, and the model to score them.

  Attributes:
    client_id: The client.
    choice: Selected model.
    x: Its examples, float32 `[n, *x_shape]`, n >= 1.
    y: Their labels, not passed to the model.
    pick_x: Labelled examples to pick a cluster by, if needed.
    pick_y: Their labels.
  """

  client_id: str
  choice: model_choice.Choice
  x: Array
  y: Array
  pick_x: Array | None = None
  pick_y: Array | None = None


class Answer(NamedTuple):
  """Response of a model to a request.

  Attributes:
    cluster_id: The cluster that answered; -1 if it was a personalized model.
    outputs: Outputs of the signature by name, `[n, ...]`.
  """

  cluster_id: int
  outputs: Mapping[str, Array]


class LoadedBundles:
  """Loaded models, called by one thread at a time.

  TensorFlow 2.14 may fail when two threads call one graph at the same time.
  """

  def __init__(
    self,
    loaded: Mapping[str, served_model.ServedModel],
    padding_label: int | None = None,
  ) -> None:
    """Takes the models.

    Args:
      loaded: Model -> its newest version.
      padding_label: Label without a loss, of models with several labels an
        example.
    """
    self._loaded = loaded
    self._padding_label = padding_label
    self._lock = threading.Lock()

  def answer(self, request: Request, max_rows: int) -> Answer:
    """Returns the outputs of a model for one client's examples."""
    cluster_id = request.choice.cluster_id
    if request.choice.model == model_choice.PERSONALIZED:
      cluster_id = -1
    elif cluster_id == model_choice.TO_BE_PICKED:
      cluster_id = self.pick(
        checks.check_given('pick_x', request.pick_x),
        checks.check_given('pick_y', request.pick_y),
        max_rows,
      )
    with self._lock:
      parts = [
        self._predict(request, cluster_id, request.x[start : start + max_rows])
        for start in range(0, len(request.x), max_rows)
      ]
    outputs = {
      name: np.concatenate([part[name] for part in parts]) for name in parts[0]
    }
    return Answer(cluster_id, outputs)

  def pick(self, x: Array, y: Array, max_rows: int) -> int:
    """Returns the cluster of the lowest mean loss on labelled examples.

    Args:
      x: `[n, *x_shape]`, n >= 1.
      y: Labels, `[n, *label_shape]`, some of which have a loss.
      max_rows: Largest number of examples per call.
    """
    cluster_models = self._loaded[model_choice.CLUSTER]
    losses = 0.0
    with self._lock:
      for start in range(0, len(x), max_rows):
        part = slice(start, start + max_rows)
        num_losses = self._num_losses(y[part])
        if num_losses:
          outputs = cluster_models.predict(
            'pick_cluster', {'x': x[part], 'label': y[part]}
          )
          # In float64, so that rounding makes no tie.
          losses += num_losses * outputs['mean_loss'][0].astype(np.float64)
    if not np.ndim(losses):
      raise errors.RequestError('no label to pick a cluster by has a loss')
    return int(np.argmin(losses))

  def _num_losses(self, y: Array) -> int:
    """Returns the number of labels with a loss, by `Model.loss_weights`."""
    if y.ndim == 1 or self._padding_label is None:
      return y.size
    return np.count_nonzero(y != self._padding_label)

  def signatures(self) -> dict[str, Signatures]:
    """Returns the tensors of each model's signatures, by model."""
    return {
      model: {
        name: {
          'inputs': _describe_tensors(signature.inputs),
          'outputs': _describe_tensors(signature.outputs),
        }
        for name, signature in served.signature_defs.items()
        if not name.startswith('__')
      }
      for model, served in self._loaded.items()
    }

  def _predict(
    self, request: Request, cluster_id: int, x: Array
  ) -> dict[str, Array]:
    if request.choice.model == model_choice.PERSONALIZED:
      inputs = {'client_id': np.array([request.client_id] * len(x), object)}
    else:
      inputs = {'cluster_id': np.full(len(x), cluster_id, np.int32)}
    served = self._loaded[request.choice.model]
    return served.predict(served_model.DEFAULT_SIGNATURE, {'x': x, **inputs})


def _describe_tensors(
  tensors: Mapping[str, meta_graph_pb2.TensorInfo],
) -> dict[str, tuple[str, Sequence[int]]]:
  """Returns tensor name -> dtype and shape; -1 is a dimension of any size."""
  return {
    name: (
      tf.dtypes.as_dtype(info.dtype).name,
      tuple(dim.size for dim in info.tensor_shape.dim),
    )
    for name, info in sorted(tensors.items())
  }


def load(found: Sequence[Bundle]) -> LoadedBundles:
  """Loads bundles.

  Raises:
    Exception: Of any kind, as TensorFlow raises for damaged files.
  """
  return LoadedBundles(
    {
      bundle.model: served_model.ServedModel(
        _FOLDERS[bundle.model], bundle.version, bundle.folder
      )
      for bundle in found
    },
    found[0].manifest.get('padding_label'),
  )


class _Nothing:
  """Empty placeholder for loaded bundles."""


def forget_loaded() -> None:
  """Releases the bundles that Beam loaded in this process.

  Beam caches the last ones until the interpreter shuts down, when they can no
  longer be released cleanly.
  """
  shared.Shared().acquire(_Nothing)


class BundleHandler(
  base.ModelHandler[Request, base.PredictionResult, LoadedBundles]
):
  """Model handler that runs `RunInference` on exported bundles by client.

  Beam's built-in handlers take one model and one tensor. Clients never share a
  batch: outputs of a row would depend on the other rows of its batch, and
  Beam's runner for Dask loses an incomplete last batch.
  """

  def __init__(
    self, found: Sequence[Bundle], max_rows: int, staging: staging_lib.Staging
  ) -> None:
    super().__init__()
    self._found = tuple(found)
    self._max_rows = max_rows
    self._staging = staging

  def load_model(self) -> LoadedBundles:
    """Loads all bundles; called by RunInference once per process."""
    # A served model reads client states from its folder.
    fetched = contextlib.ExitStack()
    with failures.carried():
      loaded = load(
        [
          bundle._replace(
            folder=fetched.enter_context(self._staging.fetched(bundle.folder))
          )
          for bundle in self._found
        ]
      )
    weakref.finalize(loaded, fetched.close)
    return loaded

  def run_inference(
    self,
    batch: Sequence[Request],
    model: LoadedBundles,
    inference_args: dict[str, Any] | None = None,
  ) -> Iterable[base.PredictionResult]:
    """Returns each request with its answer."""
    with failures.carried():
      return [
        base.PredictionResult(request, model.answer(request, self._max_rows))
        for request in batch
      ]

  def get_num_bytes(self, batch: Sequence[Request]) -> int:
    """Returns the size of the features, for Beam's metrics."""
    return sum(request.x.nbytes for request in batch)
