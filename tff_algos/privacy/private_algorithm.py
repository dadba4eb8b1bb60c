"""An algorithm with user-level differential privacy, and its account.

McMahan, Ramage, Talwar and Zhang, "Learning Differentially Private Recurrent
Language Models" (ICLR 2018), arXiv:1710.06963, for any algorithm whose releases
are sums (`releases`). From a plan that calls all clients, clients are drawn by
Poisson sampling, or take part once an epoch in a fixed order (`tree_noise`), as
the accountant assumes; any other sampler is refused.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import carrying, errors, seeds
from tff_algos.core.structures import Array, Structure
from tff_algos.privacy import accounting, mechanism, private_phase, releases
from tff_algos.rounds import extended_state, plans

# Metric: epsilon after another round.
NEXT_EPSILON = 'privacy/next_epsilon'


class Facts(NamedTuple):
  """What is assumed to be public of the run.

  Attributes:
    num_clients: Clients with training examples, >= 1.
    num_rounds: Rounds of the run, >= 1.
    run: Name of the run's data and options: runs that differ in it have other
      noise and cohorts.
  """

  num_clients: int
  num_rounds: int
  run: str


@dataclasses.dataclass(frozen=True)
class Account:
  """Account of the privacy that training spends; see `core.algorithm.Account`.

  Attributes:
    config: Options; `noise_multiplier` is that of every release.
  """

  config: mechanism.PrivacyConfig

  def metrics(self, server_state: Structure) -> dict[str, float]:
    """Returns `privacy/epsilon` so far, with a target that of a round more."""
    found = {'privacy/epsilon': self._epsilon(server_state, 0)}
    if self.config.target_epsilon:
      found[NEXT_EPSILON] = self._epsilon(server_state, 1)
    return found

  def is_spent(self, server_state: Structure) -> bool:
    """Returns whether another round might exceed the target."""
    if not self.config.target_epsilon:
      return False
    after = self._epsilon(server_state, 1)
    return self.config.is_exceeded_by(after)

  def _epsilon(self, server_state: Any, num_further: int) -> float:
    return accounting.epsilon(
      self.config.noise_multiplier,
      _participation(self.config),
      int(server_state.extra.num_releases) + num_further,
      self.config.delta,
    )


def _participation(
  config: mechanism.PrivacyConfig,
) -> accounting.Participation:
  return accounting.Participation(config.sampling_prob, config.rounds_per_epoch)


def _with_noise(config: mechanism.PrivacyConfig) -> mechanism.PrivacyConfig:
  """Returns the options with the noise that a target epsilon asks for.

  Raises:
    ConfigError: If no noise keeps to the target, or the given noise does not
      for a single round, or is too little to be accounted for.
  """
  if config.noise_multiplier:
    _check_first_round(config)
    return config
  return dataclasses.replace(
    config,
    noise_multiplier=accounting.solve_noise(
      config.target_epsilon,
      _participation(config),
      config.num_rounds,
      config.delta,
    ),
  )


def _check_first_round(config: mechanism.PrivacyConfig) -> None:
  """Raises ConfigError if the noise of one round exceeds the target."""
  least = accounting.epsilon(
    config.noise_multiplier, _participation(config), 1, config.delta
  )
  if config.is_exceeded_by(least):
    raise errors.ConfigError(
      f'privacy.target_epsilon is {config.target_epsilon:g}, but a single '
      f'round has an epsilon of {least:.3g} with privacy.noise_multiplier '
      f'{config.noise_multiplier:g}; raise one of them, or set '
      'noise_multiplier to 0 for the noise that the target asks for'
    )


def make_private(
  algorithm: algorithm_lib.FederatedAlgorithm,
  config: mechanism.PrivacyConfig,
  facts: Facts,
) -> algorithm_lib.FederatedAlgorithm:
  """Returns the algorithm with differential privacy.

  Args:
    algorithm: The algorithm; returned unchanged if privacy is off.
    config: Options.
    facts: Public facts of the run.

  Raises:
    ConfigError: If the algorithm cannot be private (`releases`), releases in
      several phases, or no noise keeps to the target epsilon.
  """
  if not config.is_on:
    return algorithm
  fields = releases.summed_fields(algorithm)
  purposes = sorted({algorithm_lib.phase_purpose(name) for name in fields})
  if len(purposes) > 1:
    raise errors.ConfigError(
      f'privacy: algorithm {algorithm.name!r} releases sums in the phases '
      f'{", ".join(purposes)}, but one release a round is accounted; sum in '
      'one phase, or train without privacy'
    )
  config = _with_noise(config.for_rounds(facts.num_rounds))
  num_turns = max(config.rounds_per_epoch, 1)
  expected_clients = config.sampling_prob * facts.num_clients / num_turns
  phases = {
    name: private_phase.make_private(
      algorithm.phases[name], of_phase, config, expected_clients
    )
    for name, of_phase in fields.items()
  }
  for name, phase in algorithm.phases.items():
    if name not in phases:
      phases[name] = private_phase.without_metrics(extended_state.lift(phase))
  extended = extended_state.extend(
    algorithm,
    lambda seed, _: private_phase.initial_state(config, seed, facts.run),
    carrying.INITIAL,
    phases,
  )

  def continue_run(before, initial):
    extra = private_phase.continued_state(config, before.extra, initial.extra)
    initial = extended.carry.newcomer_rows(before, initial)
    return initial._replace(extra=extra)

  def plan_round(server_state, population, round_num, seed):
    plan = extended.plan_round(server_state, population, round_num, seed)
    noise_seed = int.from_bytes(
      np.asarray(server_state.extra.noise_seed).tobytes(), 'little'
    )

    def sample(call):
      if call.phase not in fields:
        return call
      _check_calls_all(call, population, facts.num_clients)
      if config.rounds_per_epoch:
        takes_part = _is_their_turn(
          [population.client_ids[i] for i in call.client_indices],
          noise_seed,
          int(server_state.extra.num_releases) % config.rounds_per_epoch,
          config.rounds_per_epoch,
        )
      else:
        generator = seeds.numpy_generator(
          noise_seed, f'privacy_cohort/{call.purpose}', round_num
        )
        takes_part = (
          generator.random(len(call.client_indices)) < config.sampling_prob
        )
      inputs = releases.private_inputs(algorithm.name, call)
      return _select(
        dataclasses.replace(call, client_inputs=inputs), takes_part
      )

    yield from plans.map_calls(plan, sample)

  return dataclasses.replace(
    extended,
    plan_round=plan_round,
    account=Account(config),
    carry=extended.carry._replace(newcomer_rows=continue_run),
  )


def _is_their_turn(
  client_ids: Sequence[str], noise_seed: int, turn: int, rounds_per_epoch: int
) -> Array:
  """Returns which clients take part in a release of an epoch.

  A client's turn follows from its id and the seed in the server state alone.

  Args:
    client_ids: The clients.
    noise_seed: `PrivateState.noise_seed`, as a number.
    turn: Position of the release in its epoch, from 0.
    rounds_per_epoch: Number of turns.

  Returns:
    bool `[num_clients]`.
  """
  drawn = seeds.derive_seeds(noise_seed, 'privacy_turn', 0, client_ids)
  return drawn[:, 0].view(np.uint32) % rounds_per_epoch == turn


def _select(
  call: algorithm_lib.PhaseCall, is_drawn: Array
) -> algorithm_lib.PhaseCall:
  """Returns the call of some of its clients."""
  count = len(call.client_indices)
  # An empty cohort would be a round without noise, which shows that nobody was
  # drawn: one client stands for it, and contributes zeros.
  drawn = np.flatnonzero(is_drawn) if is_drawn.any() else np.arange(1)
  sampled = call.of(drawn)
  return dataclasses.replace(
    sampled,
    client_inputs=private_phase.SampledInput(
      is_drawn[drawn], sampled.client_inputs
    ),
    cost=algorithm_lib.Cost(
      *(total * len(drawn) // count for total in call.cost)
    ),
  )


def _check_calls_all(
  call: algorithm_lib.PhaseCall,
  population: algorithm_lib.Population,
  num_clients: int,
) -> None:
  """Raises ConfigError unless a call is of all clients with examples."""
  available = population.clients_with_examples
  if len(available) != num_clients:
    raise errors.ConfigError(
      f'privacy: {len(available)} clients are available, but the noise is for '
      f'a population of {num_clients} clients with examples; do not restrict '
      'who is available, as no accountant knows how they were chosen'
    )
  called = call.client_indices
  if isinstance(call.client_inputs, plans.Contribution):
    called = called[call.client_inputs.counts > 0]
  if not any(
    np.array_equal(np.sort(called), everyone)
    for everyone in (available, population.all_clients)
  ):
    raise errors.ConfigError(
      f'privacy: phase {call.purpose!r} samples {len(called)} of '
      f'{num_clients} clients by itself, which the accountant does not know; '
      'let the algorithm call all clients (algorithm.cohort_size 0; FedSoft: '
      "algorithm.selection 'weighted_full'), and set privacy.sampling_prob"
    )
