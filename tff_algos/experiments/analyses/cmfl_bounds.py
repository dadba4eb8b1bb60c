"""Convergence of CMFL on linear regressions against Theorem 1 of its paper.

The theorem is evaluated for full-batch SGD and a weight_decay > 0, where the
objectives are quadratic and strongly convex, so all constants but phi_min and
phi_max are exact; these are taken over the selections of the run.

One row for each number of rounds. Besides those of `COLUMNS`, its columns are
the terms of the bound (`steps` ... `floor`) and the constants (Gamma
`heterogeneity`, mu `strong_convexity`, L `smoothness`, gamma `offset`, G^2
`gradient_bound`, kappa^2 `committee_gap`).
"""

from typing import Any

import numpy as np

from tff_algos.algorithms.cmfl import bounds, cmfl
from tff_algos.core import errors
from tff_algos.experiments import experiment, session
from tff_algos.experiments.analyses import refusals, theorems

# Meaning of each printed column.
COLUMNS = {
  'rounds': 'T',
  'gap': "F(w^T) - F^*, of all clients' training examples",
  'bound': "the theorem's right side with the measured constants",
  'floor': 'its term that does not decrease with T',
  'step_excess': (
    "the last step over the theorem's 1 / (mu (t + gamma)). Not 1: the bound "
    'proves nothing. Set config.algorithm.rate_offset to gamma, and '
    'local_training.optimizer.learning_rate * server_learning_rate to '
    '1 / (mu gamma); with upload=update and one local step'
  ),
  'skew': 'phi of the last selection: its mean loss / mean loss of all',
  'skew_min': 'the least phi so far',
  'skew_max': 'the largest phi so far, at w^*',
  'heterogeneity': 'Gamma',
  'offset': 'gamma',
}


def read_objectives(
  opened: session.Session, options: cmfl.CmflConfig, use_bias: bool
) -> bounds.Objectives:
  """Returns the objectives of the clients that have examples.

  Args:
    opened: The session.
    options: Of its algorithm.
    use_bias: Whether its model has an intercept.

  Raises:
    ConfigError: If clients do not train by plain full-batch SGD.
    DataError: If an objective is not strongly convex.
  """
  _check(options, opened.source.population.num_examples)
  examples = theorems.training_rows(opened, use_bias)
  decay = options.local_training.weight_decay
  try:
    return bounds.of_ridge_regressions(examples, options.loss_scale, decay)
  except ValueError as error:
    raise errors.DataError(
      f'the theorem does not hold: {error}, or set '
      'config.algorithm.local_training.weight_decay > 0'
    ) from None


def measure(
  opened: session.Session, options: cmfl.CmflConfig, use_bias: bool
) -> list[dict[str, Any]]:
  """Runs all rounds from the initial state; discards their results.

  Args:
    opened: A session of cmfl on linear_regression.
    options: Of its algorithm.
    use_bias: Whether its model has an intercept.

  Returns:
    A row for each number of rounds; the module's docstring has its columns.

  Raises:
    UserError: If the run continues another one, or the committee adopts
      nothing in round 1, or as of `read_objectives`.
  """
  refusals.check_not_continued(opened)
  objectives = read_objectives(opened, options, use_bias)
  population = opened.source.population
  clients = np.flatnonzero(population.num_examples)
  state = opened.initial_state()
  best, mu = objectives.minimizer, objectives.strong_convexity
  start = w = theorems.vectors(state.agreed.model_weights)
  training = options.local_training
  taken = training.optimizer.learning_rate
  # With full batches an epoch is one step.
  tau = training.num_local_steps or training.num_local_epochs
  rows, skews, at_best, gaps, squared = [], [], [], [], []
  for t in range(opened.config.training.num_rounds):
    state, metrics = opened.run_round(state, t + 1)
    opened.store.commit()
    selected = np.flatnonzero(state.agreed.is_selected[clients])
    if not selected.size:
      raise errors.ConfigError(
        f'the theorem speaks of selections, but in {opened.workdir} the '
        f'committee has adopted none until round {t + 1}; take a run whose '
        'first proposal is accepted, such as one without malicious members'
      )
    committee = objectives.best_committee(int(metrics['train/num_members']))
    skews.append(objectives.skew(selected, w, committee))
    at_best.append(objectives.skew(selected, best, committee))
    gaps.append(
      abs(objectives.mean_of(selected, objectives.minima) - committee)
    )
    squared.append((objectives.gradients(w) ** 2).sum(axis=1).max())
    w = theorems.vectors(state.agreed.model_weights)
    constants = bounds.Constants(
      smoothness=objectives.smoothness,
      strong_convexity=mu,
      num_local_steps=tau,
      gradient_bound=max(squared),
      gradient_variance=0.0,
      committee_gap=max(gaps),
      heterogeneity=objectives.heterogeneity,
      skew_min=min(skews),
      skew_max=max(at_best),
      squared_start=float(((start - best) ** 2).sum()),
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


def _check(options, num_examples) -> None:
  if options.upload not in ('update', 'model'):
    raise errors.ConfigError(
      'the theorem applies to uploads of all local steps; '
      f'config.algorithm.upload is {options.upload!r}, set it to update or '
      'model'
    )
  training, optimizer = options.local_training, options.local_training.optimizer
  is_adapted = optimizer.momentum or optimizer.clip_norm
  is_sgd = optimizer.name == 'sgd' and not is_adapted
  is_whole = training.batch_size >= num_examples.max()
  if not (is_sgd and is_whole and training.solver == 'descent'):
    raise errors.ConfigError(
      'the theorem applies to plain full-batch SGD; '
      f'config.algorithm.local_training has optimizer {optimizer.name!r} with '
      f'momentum {optimizer.momentum:g} and clip_norm {optimizer.clip_norm:g}, '
      f'solver {training.solver!r} and batch_size {training.batch_size} for up '
      f'to {num_examples.max()} examples'
    )


def check(config: experiment.ExperimentConfig) -> None:
  """Raises ConfigError if rates decay, or clients drop out or are Byzantine."""
  config.lr_schedule.check_constant()
  refusals.check_honest_cohorts(
    config, 'the theorem assumes that all clients of a round upload gradients'
  )
