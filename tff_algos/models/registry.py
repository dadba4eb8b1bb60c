"""All models by name."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.models import letters_cnn, linear, mlp, precision


class Entry(NamedTuple):
  """One registered model.

  Attributes:
    config_class: Its options, a `precision.PrecisionConfig`.
    build: (options, input shape, number of outputs) -> Model.
  """

  config_class: type
  build: Callable[[Any, tuple[int, ...], int], model_lib.Model]


MODELS: Mapping[str, Entry] = {
  'linear_regression': Entry(
    linear.LinearConfig, linear.build_linear_regression
  ),
  'logistic_regression': Entry(
    linear.LinearConfig, linear.build_logistic_regression
  ),
  'mlp': Entry(mlp.MlpConfig, mlp.build_mlp),
  'letters_cnn': Entry(
    letters_cnn.LettersCnnConfig, letters_cnn.build_letters_cnn
  ),
}


def parse_config(values: Mapping[str, Any]) -> tuple[str, Any]:
  """Returns a model's name and its options from a config's `model` section.

  Raises:
    ConfigError: If the name or an option is unknown or out of range.
  """
  return config_lib.parse_named('config.model', values, MODELS)


def build_model(
  values: Mapping[str, Any],
  *,
  task: str,
  input_shape: tuple[int, ...],
  num_outputs: int,
) -> model_lib.Model:
  """Builds the model that a config's `model` section names.

  Args:
    values: `name` and the model's options.
    task: What the data asks for, `'classification'` or `'regression'`.
    input_shape: Shape of one example.
    num_outputs: Number of classes, or 1 for regression.

  Raises:
    ConfigError: If the section is wrong, or the model solves another task.
  """
  name, options = parse_config(values)
  model = MODELS[name].build(options, input_shape, num_outputs)
  if model.task != task:
    raise errors.ConfigError(
      f'config.model.name {name!r} is for {model.task}, but the data set is '
      f'for {task}'
    )
  return precision.compute_in(model, options.compute_dtype)
