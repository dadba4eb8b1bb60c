"""Linear and logistic regression."""

import dataclasses
import math
from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import model as model_lib
from tff_algos.models import layers, model_options


@dataclasses.dataclass(frozen=True)
class LinearConfig(model_options.ModelConfig):
  """Options of both regressions, besides `model_options.ModelConfig`.

  Attributes:
    use_bias: Whether there is an intercept (FedSoft's linear regression has
      none).
  """

  use_bias: bool = True


@dataclasses.dataclass(frozen=True)
class LogisticConfig(LinearConfig):
  """Options of logistic regression, besides `LinearConfig`.

  Attributes:
    reference_class: Whether the logit of class 0 is fixed to 0, which makes the
      parameters identifiable without excluding any distribution. With two
      classes it is binary logistic regression: 151 parameters for 150 features
      (PPFL's synthetic data, arXiv 2310.14337).
  """

  reference_class: bool = False


def build_linear_regression(
  config: LinearConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns y = <x, kernel> + bias; `num_outputs` must be 1."""
  del num_outputs
  return _build(
    config, 'linear_regression', model_lib.REGRESSION, input_shape, 1
  )


def build_logistic_regression(
  config: LogisticConfig, input_shape: tuple[int, ...], num_outputs: int
) -> model_lib.Model:
  """Returns multinomial logistic regression, with one logit per class."""
  if not config.reference_class:
    return _build(
      config,
      'logistic_regression',
      model_lib.CLASSIFICATION,
      input_shape,
      num_outputs,
    )
  others = build_logistic_regression(
    LogisticConfig(use_bias=config.use_bias), input_shape, num_outputs - 1
  )
  return dataclasses.replace(
    others,
    num_outputs=num_outputs,
    apply=lambda weights, x: tf.pad(others.apply(weights, x), [[0, 0], [1, 0]]),
  )


def _build(
  config: LinearConfig,
  name: str,
  task: str,
  input_shape: tuple[int, ...],
  num_outputs: int,
) -> model_lib.Model:
  num_features = math.prod(input_shape)

  def initialize(seed):
    weights = OrderedDict(
      kernel=layers.xavier_normal(seed, 0, [num_features, num_outputs])
    )
    if config.use_bias:
      weights['bias'] = tf.zeros([num_outputs])
    return weights

  def apply(weights, x):
    flat = tf.reshape(x, [-1, num_features])
    return layers.dense(flat, weights['kernel'], weights.get('bias'))

  return model_lib.Model(
    name, task, input_shape, num_outputs, initialize, apply, vectorizes=True
  )
