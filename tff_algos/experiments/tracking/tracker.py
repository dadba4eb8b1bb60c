"""What a tracker receives: params, metrics, pictures, exported models."""

import dataclasses
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tff_algos.core import checks, errors
from tff_algos.export import manifest, signature_defs

OFF = ''
MLFLOW = 'mlflow'
WANDB = 'wandb'
_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


@dataclasses.dataclass(frozen=True)
class TrackingConfig:
  """Options of tracking; affects no result.

  Where the tracker is, and who is logged in, is set by its own environment
  variables, such as MLFLOW_TRACKING_URI, WANDB_MODE and WANDB_API_KEY.

  Attributes:
    name: `'mlflow'`, `'wandb'`, or empty for no tracker.
    experiment: Experiment of MLflow or project of Weights & Biases: letters,
      digits, `_`, `.`, `-` and blanks, as both take them.
  """

  name: str = OFF
  experiment: str = 'tff_algos'

  def __post_init__(self):
    checks.check_one_of('name', self.name, (OFF, MLFLOW, WANDB))
    if not re.fullmatch(r'[\w. -]+', self.experiment):
      raise errors.ConfigError(
        'experiment must be letters, digits, _, ., - and blanks, got '
        f'{self.experiment!r}'
      )


class Field(NamedTuple):
  """An input or output of a model.

  Attributes:
    name: Its name.
    dtype: NumPy's type; object for strings.
    shape: Its shape; -1 for any size.
  """

  name: str
  dtype: np.dtype
  shape: tuple[int, ...]


class Model(NamedTuple):
  """An exported model.

  Attributes:
    name: `'cluster_models'` or `'personalized_models'`.
    bundle: Folder of the SavedModel.
    inputs: Inputs of its default signature.
    outputs: Outputs of its default signature.
    provenance: Round, config hash and dataset version.
  """

  name: str
  bundle: pathlib.Path
  inputs: tuple[Field, ...]
  outputs: tuple[Field, ...]
  provenance: Mapping[str, Any]


class Tracker(Protocol):
  """Receiver of a training and of what comes after it.

  All methods raise InfrastructureError if the tracker fails.
  """

  @property
  def run_id(self) -> str:
    """Returns the id of the run."""
    ...

  def resume(self, round_num: int) -> None:
    """Receives where the training goes on; 0 begins a new run."""
    ...

  def record(self, round_num: int, metrics: Mapping[str, float]) -> None:
    """Receives the metrics of a finished round, as `loop.Observer` does."""
    ...

  def summarize(self, metrics: Mapping[str, float]) -> None:
    """Receives the metrics of an evaluated checkpoint."""
    ...

  def add_pictures(self, paths: list[pathlib.Path]) -> None:
    """Receives the pictures of the report, in place of earlier ones."""
    ...

  def register(self, model: Model) -> None:
    """Receives a released model."""
    ...

  def close(self, has_failed: bool = False) -> None:
    """Sends what is left, and whether the program failed."""
    ...


def numbers(metrics: Mapping[str, float]) -> dict[str, float]:
  """Returns the metrics that have a value, which is NaN for the others."""
  return {
    name: float(value)
    for name, value in metrics.items()
    if not math.isnan(value)
  }


def read_model(bundle: pathlib.Path) -> Model:
  """Returns a released bundle as a model; its folder is `<name>/<version>`."""
  signature = signature_defs.read(bundle)[_SIGNATURE]
  facts = manifest.read_manifest(bundle)
  keys = ('round_num', 'config_hash', 'dataset_version')
  return Model(
    bundle.parent.name,
    bundle,
    _fields(signature.inputs),
    _fields(signature.outputs),
    {key: facts[key] for key in keys},
  )


def _fields(tensors: Mapping[str, Any]) -> tuple[Field, ...]:
  return tuple(
    Field(
      name,
      np.dtype(tf.as_dtype(tensor.dtype).as_numpy_dtype),
      tuple(dim.size for dim in tensor.tensor_shape.dim),
    )
    for name, tensor in sorted(tensors.items())
  )
