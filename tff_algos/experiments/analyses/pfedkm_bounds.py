"""Convergence of pFedKM on linear regressions against Theorem 1 of its paper.

The theorem assumes full participation and unweighted means. Moreau envelopes of
least squares and their gradients are exact.

One row for each number of rounds. Besides those of `COLUMNS`, its columns are
the terms of the bound (`start` ... `floor`), the constants (rho_Omega
`model_bound`, rho_g `gradient_bound`, Delta_F `objective_gap`, L_F
`smoothness`), and `theorem_step`, the step of Theorem 1.
"""

import dataclasses
from typing import Any, cast

import numpy as np

from tff_algos.algorithms.pfedkm import bounds, pfedkm, quadratic_envelopes
from tff_algos.core import errors
from tff_algos.experiments import experiment, session
from tff_algos.experiments.analyses import refusals, theorems
from tff_algos.numerics import quadratics
from tff_algos.runtimes import registry as runtimes

# Meaning of each printed column.
COLUMNS = {
  'rounds': 'T',
  'mean_squared_gradient': '1/T sum_t 1/K |grad F_K(Omega^t)|^2',
  'bound': 'the right side of Eq. 24 with the measured constants',
  'floor': 'its term that does not decrease with T',
  'theorem': (
    'Theorem 1 (Eq. 27), had the run taken its step; empty unless the '
    'objective fell'
  ),
  'learning_rate_excess': (
    'client_learning_rate over the largest that the proof allows, '
    '1 / (L_F sqrt(432 R 2^R)); above 1 the bound proves nothing'
  ),
  'prox_error': (
    "delta: root mean square over clients of the error of a round's first "
    'solve, of the worst round so far'
  ),
  'settled_round': 'T_C, after which no client changes its cluster',
}


def read_envelopes(
  opened: session.Session, options: pfedkm.PFedKMConfig, use_bias: bool
) -> quadratic_envelopes.QuadraticEnvelopes:
  """Returns the envelopes of the clients that have examples.

  Args:
    opened: The session.
    options: Of its algorithm.
    use_bias: Whether its model has an intercept.
  """
  training = options.local_training
  risks = quadratics.least_squares(
    theorems.training_rows(opened, use_bias),
    options.loss_scale,
    training.weight_decay,
  )
  return quadratic_envelopes.QuadraticEnvelopes(risks, training.proximal_weight)


def repeat(
  opened: session.Session, envelopes: quadratic_envelopes.QuadraticEnvelopes
) -> tuple[list[np.ndarray], list[float]]:
  """Runs all rounds from the initial state; discards their results.

  Args:
    opened: A session of pfedkm on linear_regression.
    envelopes: `read_envelopes` of it.

  Returns:
    The arguments of `bounds.measure`, and of each round the root mean
    square over clients of the error of its first solve.

  Raises:
    ConfigError: If the run continues another one.
  """
  refusals.check_not_continued(opened)
  config, population = opened.config, opened.source.population
  clients = np.flatnonzero(population.num_examples)
  state = opened.initial_state()
  # The same round, stopped after the first solve.
  first_solve = experiment.build_algorithm(_one_step(config), opened.dataset)
  looks, prox_errors = [_look(state, clients, envelopes)], []
  with runtimes.build_runtime(
    config.runtime, first_solve, population.num_clients
  ) as first_runtime:
    probe = opened._replace(algorithm=first_solve, runtime=first_runtime)
    for round_num in range(1, config.training.num_rounds + 1):
      probe.run_round(state, round_num)
      solved = opened.store.load(clients).personalized_weights
      opened.store.discard()
      models = theorems.vectors(state.cluster_models)
      received = models[state.cluster_assignment[clients]]
      wrong = theorems.vectors(solved) - envelopes.minimizers(received)
      prox_errors.append(float(np.sqrt(np.sum(wrong**2, axis=1).mean())))
      state, _ = opened.run_round(state, round_num)
      opened.store.commit()
      looks.append(_look(state, clients, envelopes))
  return [np.array(one) for one in zip(*looks, strict=True)], prox_errors


def _one_step(config: experiment.ExperimentConfig):
  options = config.algorithm.options
  local_training = dataclasses.replace(
    options.local_training, num_local_steps=1, kept='personalized'
  )
  options = dataclasses.replace(options, local_training=local_training)
  return dataclasses.replace(
    config, algorithm=config.algorithm._replace(options=options)
  )


def _look(state, clients, envelopes):
  """Returns Omega, grad F_K, the assignment and F_K; 0 for an empty cluster."""
  models = theorems.vectors(state.cluster_models)
  assignment = state.cluster_assignment[clients]
  received = models[assignment]
  members = assignment == np.arange(len(models))[:, np.newaxis]
  shares = members / np.maximum(members.sum(axis=1, keepdims=True), 1)
  gradients = shares @ envelopes.gradients(received)
  return models, gradients, assignment, shares @ envelopes.values(received)


def check(config: experiment.ExperimentConfig) -> None:
  """Checks that the theorem applies to an experiment.

  Raises:
    ConfigError: If learning rates decay, clients are sampled or Byzantine, or
      means are weighted or robust.
  """
  config.lr_schedule.check_constant()
  refusals.check_honest_cohorts(
    config, 'the theorem assumes the local models of all clients'
  )
  options = cast(pfedkm.PFedKMConfig, config.algorithm.options)
  aggregation = options.aggregation
  is_mean = options.weighting == 'uniform' and aggregation.is_plain
  if options.cohort_size or not is_mean:
    raise errors.ConfigError(
      'the theorem assumes full participation and unweighted means; '
      f'config.algorithm.cohort_size is {options.cohort_size}, weighting '
      f'{options.weighting!r}, aggregation.rule {aggregation.rule!r} and '
      'aggregation.mixes_nearest_neighbors '
      f'{aggregation.mixes_nearest_neighbors}: set them to 0, uniform, mean '
      'and False'
    )


def measure(
  opened: session.Session, options: pfedkm.PFedKMConfig, use_bias: bool
) -> list[dict[str, Any]]:
  """Returns a row for each number of rounds."""
  envelopes = read_envelopes(opened, options, use_bias)
  history, prox_errors = repeat(opened, envelopes)
  return [
    _row(envelopes, options, [one[: t + 1] for one in history], prox_error)
    for t, prox_error in enumerate(np.maximum.accumulate(prox_errors), start=1)
  ]


def _row(envelopes, options, history, prox_error) -> dict[str, Any]:
  training, num_rounds = options.local_training, len(history[0]) - 1
  constants = bounds.Constants(
    num_clients=history[2].shape[1],
    num_clusters=options.num_clusters,
    num_local_steps=training.num_local_steps,
    client_learning_rate=training.client_learning_rate,
    server_mixing=options.server_mixing,
    proximal_weight=training.proximal_weight,
    smoothness=envelopes.smoothness,
    prox_error=float(prox_error),
  )
  measured = bounds.measure(*history)
  bound = bounds.explicit_bound(constants, measured, num_rounds)
  row = {
    'rounds': num_rounds,
    'bound': bound.total,
    'learning_rate_excess': constants.learning_rate_excess,
    **bound._asdict(),
    **measured._asdict(),
    'smoothness': constants.smoothness,
    'prox_error': constants.prox_error,
  }
  if measured.objective_gap > 0:
    found = bounds.theorem(constants, measured, num_rounds)
    row.update(theorem=found.bound, theorem_step=found.step)
  return row
