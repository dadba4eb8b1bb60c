"""FedSoft's train phase alone, with importance that somebody else decides.

What its theorems speak of: everybody takes part, the importance stays, and the
centres are means weighted by it (Eqs. 4 and 27).
"""

from typing import NamedTuple

import numpy as np

from tests.testing import toys
from tff_algos.algorithms.fed_soft import center_download
from tff_algos.core import algorithm as algorithm_lib


class Round(NamedTuple):
  """One round.

  Attributes:
    before: Centres that the clients received, `[S, ...]`.
    local: Models that the clients found, `[N, ...]`.
    after: Centres after the aggregation, `[S, ...]`.
  """

  before: np.ndarray
  local: np.ndarray
  after: np.ndarray


def run(
  algorithm, runtime, source, importance, centers, num_rounds: int
) -> list[Round]:
  """Runs rounds from the given centres; returns what each did, in float64.

  Args:
    algorithm: FedSoft, of a model with one tensor of weights.
    runtime: Who runs it.
    source: The population.
    importance: u^t, `[N, S]`; also what a client weighs in each mean.
    centers: c of round 0, as the model has them, `[S, ...]`.
    num_rounds: How many.
  """
  server_state, states = toys.initial_states(algorithm, source.population)
  (name,) = server_state.cluster_models
  models = {name: np.asarray(centers, np.float32)}
  server_state = server_state._replace(cluster_models=models)
  importance = np.asarray(importance, np.float32)
  call = algorithm_lib.PhaseCall(
    'train',
    np.arange(len(importance), dtype=np.int32),
    center_download.TrainInput(importance, importance),
    algorithm_lib.Cost(),
  )
  rounds = []
  for round_num in range(1, num_rounds + 1):
    before = server_state.cluster_models[name]
    server_state = toys.run_call(
      runtime,
      algorithm.phases['train'],
      server_state,
      states,
      call,
      (round_num, 0, source),
    ).server_state
    local = np.stack([state.personalized_weights[name] for state in states])
    after = server_state.cluster_models[name]
    rounds.append(
      Round(*(part.astype(np.float64) for part in (before, local, after)))
    )
  return rounds
