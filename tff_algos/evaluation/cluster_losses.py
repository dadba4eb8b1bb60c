"""Losses of all cluster models on clients' examples."""

import numpy as np

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics
from tff_algos.rounds import evaluation
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import interrupts


def of_clients(
  algorithm: algorithm_lib.FederatedAlgorithm,
  runtime: cohort_lib.Runtime,
  server_state: Structure,
  source: cohort_lib.ClientSource,
  clients: np.ndarray,
) -> np.ndarray:
  """Returns the loss of every cluster model on some clients' examples.

  Args:
    algorithm: The algorithm.
    runtime: A runtime whose context is already entered.
    server_state: Structure of NumPy arrays.
    source: Clients and examples.
    clients: Indices of the clients, int32, ascending.

  Returns:
    float64 `[len(clients), num_clusters]`; inf where a model is not finite on a
    client, or the client has no examples.
  """
  phase = evaluation.build_cluster_evaluation(algorithm)
  call = algorithm_lib.PhaseCall(phase.name, clients, (), algorithm_lib.Cost())
  cohort = cohort_lib.Cohort(call, 0, 0, source, load_states=lambda _: ())
  with interrupts.held():
    found = runtime.run(phase, server_state, cohort).server_metrics['loss']
  losses = statistics.value_of(found)
  return np.where(np.isnan(losses), np.inf, losses)
