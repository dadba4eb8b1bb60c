"""Best of several random restarts, chosen by training loss after a few rounds.

The result of a clustered algorithm depends on its initial models. A restart is
the whole training with another seed, so initial states, cohorts and all other
random draws differ. Before round 1 each restart is trained for a few rounds in
memory, and the training uses the seed of the best restart: its first rounds
equal those of that trial, bit for bit.

The criterion is the mean over clients of the lowest mean training loss of any
cluster model. It is computed on all clients and needs no client state, so it
includes clients that have not taken part yet. Held-out examples are not used.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, seeds
from tff_algos.core.structures import Structure
from tff_algos.evaluation import cluster_losses
from tff_algos.numerics import trees
from tff_algos.runtimes import cohort as cohort_lib


@dataclasses.dataclass(frozen=True)
class RestartsConfig:
  """Options of the restarts.

  Attributes:
    num_restarts: Number of trials, >= 1; the first has the run's own seed, and
      with 1 there is no trial; nor in a run that continues another.
    num_rounds: Rounds of each trial, >= 1.
  """

  num_restarts: int = 1
  num_rounds: int = 5

  def __post_init__(self):
    checks.check_int('num_restarts', self.num_restarts, minimum=1)
    checks.check_int('num_rounds', self.num_rounds, minimum=1)

  def identity(self) -> dict[str, Any]:
    """Returns the entries that affect training state; empty for one restart."""
    if self.num_restarts == 1:
      return {}
    return {'restarts': dataclasses.asdict(self)}


class Trial(NamedTuple):
  """Result of a restart's trial; the smallest tuple is the best.

  Attributes:
    num_unfit: Clients that have a NaN or infinite loss under a cluster model.
    loss: Mean of the others' lowest mean losses; infinite if there are none.
    cost: Cost of the trial, including the clients' reports of their losses.
  """

  num_unfit: int
  loss: float
  cost: algorithm_lib.Cost


def seed_of(seed: int, restart: int) -> int:
  """Returns the seed of a restart; restart 0 has the run's own."""
  if not restart:
    return seed
  generator = seeds.numpy_generator(seed, f'restart_{restart}')
  return int(generator.integers(1 << 31))


def choose(
  config: RestartsConfig, seed: int, try_seed: Callable[[int], Trial]
) -> tuple[int, dict[str, int]]:
  """Runs the trials, and logs the best.

  Args:
    config: Options of the restarts.
    seed: The run's seed, >= 0.
    try_seed: Trains with a seed for `config.num_rounds` rounds.

  Returns:
    The seed of the best restart, the earliest on a tie, and the cost of all
    trials as metrics; empty without trials.
  """
  if config.num_restarts == 1:
    return seed, {}
  tried = [seed_of(seed, restart) for restart in range(config.num_restarts)]
  trials = [try_seed(one) for one in tried]
  best = min(range(len(trials)), key=lambda r: trials[r][:2])
  logging.info(
    'Restart %d of 0 ... %d is the best after %d rounds; training losses: %s.',
    best,
    config.num_restarts - 1,
    config.num_rounds,
    ', '.join(_spell(trial) for trial in trials),
  )
  total = _total([trial.cost for trial in trials])
  return tried[best], {
    f'cost/{name}': value for name, value in total._asdict().items()
  }


def judge(
  algorithm: algorithm_lib.FederatedAlgorithm,
  runtime: cohort_lib.Runtime,
  source: cohort_lib.ClientSource,
  server_state: Structure,
  cost: algorithm_lib.Cost,
) -> Trial:
  """Evaluates a trial's cluster models on the clients' training examples.

  Args:
    algorithm: The trained algorithm.
    runtime: A runtime whose context is already entered.
    source: The training examples.
    server_state: The state at the end of the trial, NumPy.
    cost: Cost of the trial's rounds.
  """
  clients = np.flatnonzero(source.population.num_examples).astype(np.int32)
  losses = cluster_losses.of_clients(
    algorithm, runtime, server_state, source, clients
  )
  fit = losses[np.isfinite(losses).all(axis=1)].min(axis=1)
  # Rounded, so that it is equal on all processes of a group, on any machines.
  mean = math.fsum(fit) / len(fit) if len(fit) else math.inf
  num_parameters = trees.num_entries(algorithm.cluster_model.weights_spec())
  downlink = len(clients) * algorithm.num_clusters * num_parameters
  reports = algorithm_lib.Cost(downlink, uplink_floats=len(clients))
  return Trial(len(clients) - len(fit), mean, _total([cost, reports]))


def _total(costs: Sequence[algorithm_lib.Cost]) -> algorithm_lib.Cost:
  return algorithm_lib.Cost(*(sum(parts) for parts in zip(*costs, strict=True)))


def _spell(trial: Trial) -> str:
  unfit = f' ({trial.num_unfit} clients unfit)' if trial.num_unfit else ''
  return f'{trial.loss:.4g}{unfit}'
