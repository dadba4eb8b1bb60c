"""Communication schedule: fast weights every round, slow ones periodically.

Chen and Qiu (2025), Algorithm 2: atoms and the head are fast, coefficients
slow. A full round sends everything, a fast round the fast groups alone.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from tff_algos.algorithms.filter_decomposition import filter_groups
from tff_algos.core import algorithm, checks, errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees

FAST_ROUNDS = ('discard', 'persist', 'freeze')


@dataclasses.dataclass(frozen=True)
class ScheduleConfig:
  """Communication schedule of fast and slow weights.

  Attributes:
    slow_period: 1 / beta, >= 1. Period of the full rounds, from round 1 on; 1
      for full rounds only.
    fast_groups: Groups of `filter_groups.GROUPS` that are also sent in fast
      rounds.
    fast_rounds: Treatment of a client's slow weights in a fast round.
      `'discard'`, as printed: they are trained, and discarded. `'persist'`: the
      client's next round starts from them, until after a full round; the
      paper's proof assumes it. `'freeze'`: they are not trained.
  """

  slow_period: int = 1
  fast_groups: tuple[str, ...] = (filter_groups.ATOMS, filter_groups.HEAD)
  fast_rounds: str = 'discard'

  def __post_init__(self):
    checks.check_int('slow_period', self.slow_period, minimum=1)
    for group in self.fast_groups:
      checks.check_one_of('fast_groups', group, filter_groups.GROUPS)
    checks.check_one_of('fast_rounds', self.fast_rounds, FAST_ROUNDS)
    if not self.fast_groups:
      raise errors.ConfigError(
        'fast_groups is empty: nothing would travel in a fast round; name some '
        f'of {", ".join(filter_groups.GROUPS)}'
      )

  @property
  def slow_groups(self) -> tuple[str, ...]:
    """Returns the groups that are sent in full rounds alone."""
    return tuple(
      group for group in filter_groups.GROUPS if group not in self.fast_groups
    )

  @property
  def persists(self) -> bool:
    """Returns whether clients keep their slow weights between rounds."""
    return self.slow_period > 1 and self.fast_rounds == 'persist'

  def is_full(self, round_num: int) -> bool:
    """Returns whether a round is full (rounds count from 1)."""
    return (round_num - 1) % self.slow_period == 0

  def version(self, round_num: int) -> int:
    """Returns the number of full rounds before a round."""
    return -(-(round_num - 1) // self.slow_period)


class Kept(NamedTuple):
  """Client state of persistent slow weights.

  Attributes:
    weights: The client's slow weights.
    version: Version of the server's slow weights from which they were trained,
      int32 `[]`; -1 before the first round.
  """

  weights: model_lib.Weights
  version: tf.Tensor

  def start(
    self, received: model_lib.Weights, version: tf.Tensor
  ) -> model_lib.Weights:
    """Returns the client's starting point: its slow weights, if up to date."""
    theirs = filter_groups.take(received, self.weights)
    is_current = tf.equal(self.version, version)
    own = trees.select(is_current, self.weights, theirs)
    return filter_groups.put(received, own)


def initial(model: model_lib.Model, config: ScheduleConfig) -> Kept:
  """Returns the state of a client that never took part."""
  return Kept(trees.zeros(_slow_spec(model, config)), tf.constant(-1))


def slow_names(
  model: model_lib.Model, config: ScheduleConfig
) -> tuple[str, ...]:
  """Returns the names of the slow weights."""
  return filter_groups.names_of(
    filter_groups.names_by_group(model), config.slow_groups
  )


def num_slow(model: model_lib.Model, config: ScheduleConfig) -> int:
  """Returns the number of slow scalars."""
  return trees.num_entries(_slow_spec(model, config))


def _slow_spec(model, config):
  return filter_groups.take(model.weights_spec(), slow_names(model, config))


def check_fits(model: model_lib.Model, config: ScheduleConfig) -> None:
  """Raises ConfigError unless fast rounds send some and omit some weights.

  Args:
    model: The model.
    config: A schedule with slow_period above 1.
  """
  groups = filter_groups.names_by_group(model)
  for group in config.fast_groups:
    if group not in groups:
      raise errors.ConfigError(
        f'fast_groups names {group!r}, but the weights of model '
        f'{model.name!r} are {", ".join(groups)}; name some of these, or '
        'decompose its convolutions by config.model.decomposition.num_atoms'
      )
  if not filter_groups.names_of(groups, config.slow_groups):
    raise errors.ConfigError(
      f'fast_groups are all weights of model {model.name!r} '
      f'({", ".join(groups)}), so that a fast round spares nothing; leave some '
      'out, or set slow_period to 1'
    )


def freeze(
  phase: algorithm.Phase,
  model: model_lib.Model,
  config: ScheduleConfig,
  build_phases: Callable[[model_lib.Model], Mapping[str, algorithm.Phase]],
) -> algorithm.Phase:
  """Returns a phase in which clients freeze the slow weights.

  Clients train a model of the fast weights alone, so that weight decay and
  proximal terms apply to these alone, too.

  Args:
    phase: Trains `model`, its message, and uploads `local_weights`; clients
      keep no state.
    model: The model.
    config: The schedule, which defines the slow weights.
    build_phases: model -> phases, of which `phase.name` trains that model.

  Returns:
    A phase whose `local_weights` are the fast ones.
  """
  slow = slow_names(model, config)
  fast = [name for name in model.weights_spec() if name not in slow]

  def client_work(received, *client):
    model_of_fast = dataclasses.replace(
      model,
      initialize=lambda seed: filter_groups.take(model.initialize(seed), fast),
      apply=lambda weights, x: model.apply(
        filter_groups.put(received, weights), x
      ),
    )
    work = build_phases(model_of_fast)[phase.name].client_work
    return work(filter_groups.take(received, fast), *client)

  return phase._replace(client_work=client_work)


def cost_of(
  call: algorithm.PhaseCall,
  round_num: int,
  num_slow_scalars: int,
  config: ScheduleConfig,
) -> algorithm.Cost:
  """Returns the cost of a round from the host's cost of a full round.

  Args:
    call: The host's phase call.
    round_num: From 1.
    num_slow_scalars: As from `num_slow`.
    config: The schedule.
  """
  num_spared = 0 if config.is_full(round_num) else len(call.client_indices)
  return call.cost._replace(
    downlink_floats=call.cost.downlink_floats - num_slow_scalars * num_spared,
    uplink_floats=call.cost.uplink_floats - num_slow_scalars * num_spared,
  )
