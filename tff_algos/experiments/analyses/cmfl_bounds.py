"""The rounds of a CMFL on linear regressions, and the exact objectives there."""

from typing import Any

import numpy as np

from tff_algos.algorithms.cmfl import bounds, cmfl
from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.experiments import session
from tff_algos.experiments.analyses import linear_models
from tff_algos.training import loop


def read_objectives(
  opened: session.Session, options: cmfl.CmflConfig, use_bias: bool
) -> bounds.Objectives:
  """Returns the objectives of the clients that have examples.

  Args:
    opened: The session.
    options: Of its algorithm.
    use_bias: Whether its model has an intercept.

  Raises:
    ConfigError: If clients do not take plain steps on all of their examples.
    DataError: If an objective is not strongly convex.
  """
  _check(options, opened.source.population.num_examples)
  ids, sizes = opened.source.population
  examples = [
    linear_models.rows_of(
      opened.dataset.examples(ids[client], schema.TRAIN), use_bias
    )
    for client in np.flatnonzero(sizes)
  ]
  decay = options.local_training.weight_decay
  try:
    return bounds.of_ridge_regressions(examples, options.loss_scale, decay)
  except ValueError as error:
    raise errors.DataError(f'the theorem does not hold: {error}') from None


def repeat(
  opened: session.Session,
  options: cmfl.CmflConfig,
  objectives: bounds.Objectives,
) -> list[dict[str, Any]]:
  """Runs all rounds from the initial state; nothing of them is kept.

  Args:
    opened: A session of cmfl on linear_regression.
    options: Of its algorithm.
    objectives: `read_objectives` of it.

  Returns:
    A row for each number of rounds; see `committee_bounds`.
  """
  config, population = opened.config, opened.source.population
  clients = np.flatnonzero(population.num_examples)
  state = loop.initial_server_state(
    opened.algorithm, population.num_clients, config.seed
  )
  best, mu = objectives.minimizer, objectives.strong_convexity
  start = w = linear_models.vectors(state.agreed.model_weights)
  taken, tau = _steps_of(options.local_training)
  rows, skews, at_best, gaps, squared = [], [], [], [], []
  for t in range(config.training.num_rounds):
    state, metrics = loop.run_round(
      *(opened.algorithm, opened.runtime, opened.source, opened.store),
      *(state, t + 1, config.seed),
    )
    opened.store.commit(t + 1)
    selected = np.flatnonzero(state.agreed.is_selected[clients])
    committee = objectives.best_committee(int(metrics['train/num_members']))
    skews.append(objectives.skew(selected, w, committee))
    at_best.append(objectives.skew(selected, best, committee))
    gaps.append(
      abs(objectives.mean_of(selected, objectives.minima) - committee)
    )
    squared.append((objectives.gradients(w) ** 2).sum(axis=1).max())
    w = linear_models.vectors(state.agreed.model_weights)
    constants = bounds.Constants(
      *(objectives.smoothness, mu, tau, max(squared), 0.0, max(gaps)),
      *(objectives.heterogeneity, min(skews), max(at_best)),
      float(((start - best) ** 2).sum()),
    )
    bound = bounds.theorem(constants, (t + 1) * tau)
    wanted = bounds.step(mu, constants.offset, t * tau)
    rows.append(
      {
        'rounds': t + 1,
        'gap': objectives.gap(w) - objectives.heterogeneity,
        'bound': bound.total,
        'step_excess': taken * options.rate(t + 1) / wanted,
        'skew': skews[-1],
        **bound._asdict(),
        **constants._asdict(),
        'offset': constants.offset,
      }
    )
  return rows


def _steps_of(training) -> tuple[float, int]:
  """Returns the rate and the number of local steps, tau."""
  # On whole batches an epoch is a step, too.
  tau = training.num_local_steps or training.num_local_epochs
  return training.optimizer.learning_rate, tau


def _check(options, num_examples) -> None:
  if options.upload not in ('update', 'model'):
    raise errors.ConfigError(
      'the theorem is measured where clients upload all of their steps; '
      f'config.algorithm.upload is {options.upload!r}, set it to update or model'
    )
  training = options.local_training
  is_sgd = training.optimizer.name == 'sgd' and not training.optimizer.momentum
  is_whole = training.batch_size >= num_examples.max()
  if not (is_sgd and is_whole and training.solver == 'descent'):
    raise errors.ConfigError(
      'the theorem is measured for plain SGD on whole batches; '
      'config.algorithm.local_training has optimizer '
      f'{training.optimizer.name!r}, solver {training.solver!r} and batch_size '
      f'{training.batch_size} for up to {num_examples.max()} examples'
    )
