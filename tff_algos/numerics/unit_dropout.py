"""Dropout of hidden units, in training steps alone (Srivastava et al. 2014).

A model stays a function of weights and examples: `in_step` sets the draws of a
training step around the call of the model, and its layers apply them. Outside
of it, in evaluation and in exports, no unit is dropped.

A draw depends on the client's seed (of run, phase, round and client), the
epoch, the example's row among the client's, the layer and the unit, and not on
padding, batches, blocks of clients or runtimes.
"""

import contextlib
import contextvars
import itertools
import math
from collections.abc import Generator, Sequence
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import errors
from tff_algos.numerics import index_random

# The first counter of every draw, so that none is a draw of a shuffle.
_PURPOSE = 0x64726F70
_CHANCES = 2**15


class Draws(NamedTuple):
  """Seed and counters that determine which units a step drops.

  Attributes:
    seed: Of the client, int32 `[2]`.
    epoch: int32 `[]`.
    rows: Rows of the batch's examples among the client's, int32 `[batch]`.
  """

  seed: tf.Tensor
  epoch: tf.Tensor
  rows: tf.Tensor


class _Step:
  def __init__(self, rate: float, draws: Draws) -> None:
    self.rate = rate
    self.draws = draws
    self.has_layer = False


_STEP: contextvars.ContextVar[_Step | None] = contextvars.ContextVar(
  'unit_dropout', default=None
)


@contextlib.contextmanager
def in_step(rate: float, draws: Draws) -> Generator[None]:
  """Context of a training step, in which networks apply dropout.

  Args:
    rate: Share of units dropped by layers without a rate of their own, in
      [0, 1), in steps of 2**-15; 0 drops none.
    draws: Of the step.

  Raises:
    ConfigError: If the rate drops all units; or at the end, if it is not 0 and
      no network had a layer that takes it.
  """
  _num_dropped('unit_dropout_rate', rate)
  step = _Step(rate, draws)
  token = _STEP.set(step)
  try:
    yield
  finally:
    _STEP.reset(token)
  if rate and not step.has_layer:
    raise errors.ConfigError(
      f'unit_dropout_rate is {rate:g}, but the model has no layer that drops '
      "units by it; set it to 0, or take the model 'lenet' with variant "
      "'fed_rep_wide', which has one. Dropout layers of Keras have rates of "
      'their own'
    )


def is_in_step() -> bool:
  """Returns whether the caller is within `in_step`, so in training."""
  return _STEP.get() is not None


def drop(
  hidden: tf.Tensor,
  layer: int,
  rate: float | None = None,
  is_shared: Sequence[bool] = (),
) -> tf.Tensor:
  """Returns the units, with dropout inside `in_step`.

  Units that stay are divided by their share, so that each unit keeps its mean.

  Args:
    hidden: `[batch, ...]`, all axes but the batch static.
    layer: Number of the layer, so that layers differ.
    rate: The layer's own rate, in [0, 1); by default that of the step.
    is_shared: For each axis after the batch, whether its units are dropped
      together; by default none are.

  Raises:
    ConfigError: If the rate drops all units, or the batch has another size.
  """
  step = _STEP.get()
  if step is None:
    return hidden
  if rate is None:
    step.has_layer, rate = True, step.rate
  num_dropped = _num_dropped('rate', rate)
  if not num_dropped:
    return hidden
  sizes = [
    1 if shared else int(size or 0)
    for size, shared in itertools.zip_longest(hidden.shape[1:], is_shared)
  ]
  draws = step.draws
  if not hidden.shape[:1].is_compatible_with(draws.rows.shape):
    raise errors.ConfigError(
      f'dropout needs one row of units for each of the {draws.rows.shape[0]} '
      f'examples of the batch, got {hidden.shape[0]} rows; drop units before '
      'or after layers that merge the batch with another axis'
    )
  drawn = index_random.random_below(
    _CHANCES,
    draws.seed,
    tf.constant(_PURPOSE),
    tf.constant(layer),
    draws.epoch,
    tf.reshape(draws.rows, [-1, *[1] * len(sizes)]),
    tf.reshape(tf.range(math.prod(sizes)), [1, *sizes]),
  )
  share = 1 - num_dropped / _CHANCES
  return tf.where(drawn >= num_dropped, hidden / share, tf.zeros_like(hidden))


def _num_dropped(name: str, rate: float) -> int:
  """Returns how many of `_CHANCES` drop a unit.

  Raises:
    ConfigError: If all do.
  """
  num_dropped = round(rate * _CHANCES)
  if num_dropped == _CHANCES:
    raise errors.ConfigError(
      f'{name} must leave units, got {rate:g}, which drops all; lower it'
    )
  return num_dropped
