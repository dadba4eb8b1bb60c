"""The rounds of a pFedKM on linear regressions, and the exact envelopes there."""

import dataclasses

import numpy as np

from tff_algos.algorithms.pfedkm import pfedkm, quadratic_envelopes
from tff_algos.data import schema
from tff_algos.experiments import experiment, session
from tff_algos.experiments.analyses import linear_models
from tff_algos.runtimes import registry as runtimes
from tff_algos.training import loop


def read_envelopes(
  opened: session.Session, options: pfedkm.PFedKMConfig, use_bias: bool
) -> quadratic_envelopes.QuadraticEnvelopes:
  """Returns the envelopes of the clients that have examples.

  Args:
    opened: The session.
    options: Of its algorithm.
    use_bias: Whether its model has an intercept.
  """
  ids, sizes = opened.source.population
  return quadratic_envelopes.of_least_squares(
    [
      linear_models.rows_of(
        opened.dataset.examples(ids[client], schema.TRAIN), use_bias
      )
      for client in np.flatnonzero(sizes)
    ],
    options.local_training.proximal_weight,
    options.loss_scale,
    options.local_training.weight_decay,
  )


def repeat(
  opened: session.Session, envelopes: quadratic_envelopes.QuadraticEnvelopes
) -> tuple[list[np.ndarray], list[float]]:
  """Runs all rounds from the initial state; nothing of them is kept.

  Args:
    opened: A session of pfedkm on linear_regression.
    envelopes: `read_envelopes` of it.

  Returns:
    What `metrics.envelope_bounds.measure` takes, and of each round the root mean
    square over clients of the error of its first solve.
  """
  config, population = opened.config, opened.source.population
  clients = np.flatnonzero(population.num_examples)
  state = loop.initial_server_state(
    opened.algorithm, population.num_clients, config.seed
  )
  # The same round but for its end: it stops after the first solve.
  first_solve = experiment.build_algorithm(_one_step(config), opened.dataset)
  looks, prox_errors = [_look(state, clients, envelopes)], []
  with runtimes.build_runtime(
    config.runtime, first_solve, population.num_clients
  ) as first_runtime:
    for round_num in range(1, config.training.num_rounds + 1):
      rest = (opened.source, opened.store, state, round_num, config.seed)
      loop.run_round(first_solve, first_runtime, *rest)
      solved = opened.store.load(clients).personalized_weights
      opened.store.discard()
      received = _vectors(state)[state.cluster_assignment[clients]]
      wrong = linear_models.vectors(solved) - envelopes.minimizers(received)
      prox_errors.append(float(np.sqrt(np.sum(wrong**2, axis=1).mean())))
      state, _ = loop.run_round(opened.algorithm, opened.runtime, *rest)
      opened.store.commit(round_num)
      looks.append(_look(state, clients, envelopes))
  return [np.array(one) for one in zip(*looks, strict=True)], prox_errors


def _one_step(config: experiment.ExperimentConfig):
  algorithm = dict(config.algorithm)
  algorithm['local_training'] = {
    **algorithm.get('local_training', {}),
    'num_local_steps': 1,
    'kept': 'personalized',
  }
  return dataclasses.replace(config, algorithm=algorithm)


def _vectors(state: pfedkm.ServerState) -> np.ndarray:
  return linear_models.vectors(state.cluster_models)


def _look(state, clients, envelopes):
  """Returns Omega, grad F_K, the assignment and F_K; 0 for an empty cluster."""
  models, assignment = _vectors(state), state.cluster_assignment[clients]
  received = models[assignment]
  members = assignment == np.arange(len(models))[:, np.newaxis]
  shares = members / np.maximum(members.sum(axis=1, keepdims=True), 1)
  gradients = shares @ envelopes.gradients(received)
  return models, gradients, assignment, shares @ envelopes.values(received)
