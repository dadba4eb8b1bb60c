"""Server states extended by a structure of a wrapper's own.

A wrapper of an algorithm may need a server state beside the algorithm's: a
clipping norm, a number of draws, the state of an aggregator. `extend` lifts all
functions on the server state to a pair of both, so runtimes, checkpoints and
continued runs are unaffected.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import carrying
from tff_algos.core.structures import Leaf, Structure
from tff_algos.rounds import plans


class ExtendedState(NamedTuple):
  """Server state of an extended algorithm.

  Attributes:
    server_state: The algorithm's own server state.
    extra: The wrapper's part.
  """

  server_state: Any
  extra: Any


class _Account(NamedTuple):
  """Functions of an `algorithm.Account`, on `ExtendedState`."""

  metrics: Callable[..., Any]
  is_spent: Callable[..., Any]


def lift(phase: algorithm_lib.Phase) -> algorithm_lib.Phase:
  """Returns a phase on `ExtendedState` that leaves `extra` unchanged."""

  def server_update(
    state: Structure, aggregates: Mapping[str, Structure]
  ) -> tuple[Structure, Structure]:
    updated, metrics = phase.server_update(state.server_state, aggregates)
    return state._replace(server_state=updated), metrics

  return phase._replace(
    make_message=lambda state: phase.make_message(state.server_state),
    server_update=server_update,
  )


def extend(
  algorithm: algorithm_lib.FederatedAlgorithm,
  init_extra: Callable[[Leaf, int], Structure],
  rules: carrying.Rule | carrying.Rules,
  phases: Mapping[str, algorithm_lib.Phase],
) -> algorithm_lib.FederatedAlgorithm:
  """Returns the algorithm on `ExtendedState`.

  Args:
    algorithm: The algorithm.
    init_extra: (seed int32 `[2]`, num_clients) -> the initial `extra`.
    rules: How `extra` moves to another population: one rule, or one for each
      field of a NamedTuple.
    phases: name -> phase, all on `ExtendedState`; see `lift`.
  """
  carry, newcomers = algorithm.carry, algorithm.newcomers
  newcomer_state, local = carry.newcomer_state, algorithm.local_weights
  account = algorithm.account

  def on_own(
    function: Callable[..., Structure],
  ) -> Callable[..., Structure]:
    return lambda state, *rest: function(state.server_state, *rest)

  def plan_round(
    state: Structure,
    population: algorithm_lib.Population,
    round_num: int,
    seed: int,
  ) -> algorithm_lib.RoundPlan:
    own = state.server_state
    plan = algorithm.plan_round(own, population, round_num, seed)
    calls = plans.Calls(plan, own)
    for call in calls:
      calls.server_state = (yield call).server_state

  return dataclasses.replace(
    algorithm,
    init_server_state=lambda seed, num_clients: ExtendedState(
      algorithm.init_server_state(seed, num_clients),
      init_extra(seed, num_clients),
    ),
    phases=phases,
    plan_round=plan_round,
    cluster_weights=on_own(algorithm.cluster_weights),
    personalized_weights=on_own(algorithm.personalized_weights),
    membership=on_own(algorithm.membership),
    local_weights=local and on_own(local),
    newcomers=newcomers
    and algorithm_lib.Newcomers(
      on_own(newcomers.fit), on_own(newcomers.weights)
    ),
    account=account
    and _Account(on_own(account.metrics), on_own(account.is_spent)),
    carry=carrying.Carry(
      rules={'server_state': carry.rules, 'extra': rules},
      newcomer_rows=lambda old, initial: initial._replace(
        server_state=carry.newcomer_rows(old.server_state, initial.server_state)
      ),
      newcomer_state=newcomer_state and on_own(newcomer_state),
    ),
  )
