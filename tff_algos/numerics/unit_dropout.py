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
from collections.abc import Generator
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import checks, errors
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
  def __init__(self, rate: float, draws: Draws | None) -> None:
    self.rate = rate
    self.draws = draws
    self.has_layer = False


_STEP: contextvars.ContextVar[_Step | None] = contextvars.ContextVar(
  'unit_dropout', default=None
)


@contextlib.contextmanager
def in_step(rate: float, draws: Draws | None) -> Generator[None]:
  """Context in which networks apply dropout.

  Args:
    rate: Share of units that are dropped, in [0, 1), in steps of 2**-15; 0
      drops none.
    draws: Of the step; None for a rate of 0.

  Raises:
    ConfigError: If the rate drops all units; or at the end, if no network had a
      layer that drops units.
  """
  if not rate:
    yield
    return
  if round(rate * _CHANCES) == _CHANCES:
    raise errors.ConfigError(
      f'unit_dropout_rate must leave units, got {rate:g}, which drops all; '
      'lower it'
    )
  step = _Step(rate, draws)
  token = _STEP.set(step)
  try:
    yield
  finally:
    _STEP.reset(token)
  if not step.has_layer:
    raise errors.ConfigError(
      f'unit_dropout_rate is {rate:g}, but the model has no layer that drops '
      "units; set it to 0, or take the model 'lenet' with variant "
      "'fed_rep_wide', which has one"
    )


def drop(hidden: tf.Tensor, layer: int) -> tf.Tensor:
  """Returns the units, with dropout inside `in_step`.

  Units that stay are divided by their share, so that each unit keeps its mean.

  Args:
    hidden: `[batch, units]`, units static.
    layer: Number of the layer, so that layers differ.
  """
  step = _STEP.get()
  if step is None:
    return hidden
  step.has_layer = True
  num_dropped = round(step.rate * _CHANCES)
  draws = checks.check_given('draws', step.draws)
  drawn = index_random.random_below(
    _CHANCES,
    draws.seed,
    tf.constant(_PURPOSE),
    tf.constant(layer),
    draws.epoch,
    draws.rows[:, tf.newaxis],
    tf.range(hidden.shape[1])[tf.newaxis],
  )
  share = 1 - num_dropped / _CHANCES
  return tf.where(drawn >= num_dropped, hidden / share, tf.zeros_like(hidden))
