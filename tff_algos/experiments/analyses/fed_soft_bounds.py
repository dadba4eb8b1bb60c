"""Rounds of FedSoft on linear regressions against Theorems 2 to 4 of its paper.

The theorems assume quadratic risks of the sources, clients that are mixtures of
the sources, and the local solves of one round from given centres, with as many
clusters as sources. Risks are computed on the sources' held-out examples,
importance weights on the clients' training examples.

One row for the initial state, unless the run continues another one, and for
each checkpoint; `round` is the round of
the starting state. Besides those of `COLUMNS`, its columns are

  theorem_3_safe         Theorem 3 with an r that needs no alpha_0 >= 1/4
  assumption_1, _2, _4   whether each holds: a finite gamma_0, a finite beta,
                         alpha_0 > 0 (strong convexity, the third, holds, or
                         there is an error). Theorem 2 needs all but the fourth,
                         Theorem 3 all
  gamma_0 ... max_gap    the constants: r is `radius`, mu_F `convexity`, L_F
                         `smoothness`, delta and Delta `min_gap` and `max_gap`
  floor                  of Theorem 4: 0 if every client holds every source
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tff_algos.algorithms.fed_soft import bounds, fed_soft, quadratic_risks
from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.evaluation import recovery
from tff_algos.experiments import experiment, session
from tff_algos.experiments.analyses import refusals, theorems
from tff_algos.numerics import quadratics

# Meaning of each printed column.
COLUMNS = {
  'round': 'round of the starting state',
  'theorem_2': 'largest left side / right side; at most 1 if the theorem holds',
  'theorem_3': 'the same ratio of Theorem 3, with r as printed',
  'gamma': (
    'the constant of Theorem 2, sqrt((gamma_0^2 + beta) L_lambda / mu_lambda)'
  ),
  'alpha_0': 'Assumption 4 holds if it is > 0',
  'misassignment': (
    "p, the largest share of a source's examples that another centre fits "
    'better'
  ),
  'rho': (
    'Theorem 4 promises descent if it is > 0; the least over sources. Read '
    'its shape: the printed proof has a gap'
  ),
  'center_error': (
    "mean distance of centres from the sources' minimisers, in units of max_gap"
  ),
  'mixing_error': (
    'center_error if all clients took part with perfect importance: the '
    'cost of clients that are mixtures, which Theorem 4 does not show'
  ),
  'estimation_error': (
    'center_error if all clients took part with the importance of this '
    'round; the rest is due to drawing without replacement'
  ),
}


class Problem(NamedTuple):
  """Quantities shared by all rounds; sources in the dataset's order.

  Attributes:
    examples: Held-out (x `[n, d]`, y `[n]`) of each source; if the model has an
      intercept, the last column of x is ones.
    risks: Of the sources, on these examples.
    mixture: Share of each source in each client's training examples, float64
      `[num_clients, num_sources]`; zeros for a client without any.
    num_examples: Training examples of each client, `[num_clients]`.
    options: Of the algorithm.
  """

  examples: list[tuple[np.ndarray, np.ndarray]]
  risks: quadratic_risks.QuadraticRisks
  mixture: np.ndarray
  num_examples: np.ndarray
  options: fed_soft.FedSoftConfig

  @property
  def num_draws(self) -> float:
    """Returns K, clients sampled per cluster; inf for full participation."""
    size = self.options.cohort_size_per_cluster
    without = self.options.selection == 'without_replacement'
    everyone = without and size == np.count_nonzero(self.num_examples)
    if everyone or self.options.selection == 'weighted_full':
      return np.inf
    return size

  def fixed_centers(self, importance: np.ndarray) -> np.ndarray:
    """Returns `quadratic_risks.fixed_centers` for this importance."""
    return quadratic_risks.fixed_centers(
      self.risks,
      self.mixture,
      importance,
      self.num_examples,
      self.options.proximal_weight,
    )


class Step(NamedTuple):
  """One repeated round; clusters in the order of the sources.

  Attributes:
    round_num: Round of the starting state.
    solves: Of the clients that trained.
    importance: u^t of all clients, float64 `[num_clients, num_sources]`.
  """

  round_num: int
  solves: bounds.LocalSolves
  importance: np.ndarray


def read_problem(
  opened: session.Session, options: fed_soft.FedSoftConfig, use_bias: bool
) -> Problem:
  """Reads the problem from a session's dataset.

  Raises:
    ConfigError: If there are not as many clusters as sources.
    DataError: If there are fewer than two sources, or the held-out examples of
      one do not span the features.
  """
  dataset, population = opened.dataset, opened.source.population
  num_sources = dataset.schema.num_sources
  if options.num_clusters != num_sources:
    raise errors.ConfigError(
      f'config.algorithm.num_clusters is {options.num_clusters}, but '
      f'{dataset.path} has {num_sources} sources; the theorems speak of one '
      'cluster for each source'
    )
  examples = [
    theorems.rows_of(dataset.held_out(source), use_bias)
    for source in range(num_sources)
  ]
  terms = quadratics.least_squares(examples, options.loss_scale)
  try:
    risks = quadratic_risks.QuadraticRisks(terms.matrices, terms.minimizers)
  except ValueError as error:
    raise errors.DataError(
      f'held-out examples of {dataset.path}: {error}'
    ) from None
  clients = [
    dataset.examples(client_id, schema.TRAIN).source
    for client_id in population.client_ids
  ]
  counts = np.stack(
    [np.bincount(one, minlength=num_sources) for one in clients]
  )
  mixture = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
  return Problem(examples, risks, mixture, population.num_examples, options)


def steps(opened: session.Session, problem: Problem) -> Iterator[Step]:
  """Runs one round from the initial state and from each checkpoint.

  The results of these rounds are discarded. Clusters are matched to sources by
  the importance weights of the round.

  Raises:
    CheckpointError: If there is no checkpoint.
    DataError: If no local solve of a round is finite.
  """
  everyone = np.arange(len(problem.mixture))
  store = opened.store
  for round_num, start in opened.saved_states():
    before = np.array(store.load(everyone).num_updates)
    server_state, _ = opened.run_round(start, round_num + 1)
    after = store.load(everyone)
    trained = np.asarray(after.num_updates) > before
    if not trained.any():
      raise errors.DataError(
        f'in round {round_num + 1} of {opened.workdir} no client has a finite '
        'local solve, so the run has diverged. Train one with a smaller '
        'config.algorithm.local_training.optimizer.learning_rate'
      )
    importance = np.asarray(server_state.importance_weights, np.float64)
    order = np.argsort(recovery.match_clusters(importance, problem.mixture))
    importance = importance[:, order]
    solves = bounds.LocalSolves(
      local_models=theorems.vectors(after.personalized_weights)[trained],
      centers=theorems.vectors(start.cluster_models)[order],
      mixture=problem.mixture[trained],
      importance=importance[trained],
      proximal_weight=problem.options.proximal_weight,
    )
    store.discard()
    yield Step(round_num, solves, importance)


def check(config: experiment.ExperimentConfig) -> None:
  """Raises ConfigError if clients drop out or are Byzantine."""
  refusals.check_honest_cohorts(
    config, 'the theorems assume the local solves of all clients of a round'
  )


def measure(
  opened: session.Session, options: fed_soft.FedSoftConfig, use_bias: bool
) -> list[dict[str, Any]]:
  """Returns a row for the initial state and for each checkpoint.

  Raises:
    UserError: As of `read_problem` and `steps`.
  """
  problem = read_problem(opened, options, use_bias)
  return [_row(problem, step) for step in steps(opened, problem)]


def _row(problem: Problem, step: Step) -> dict[str, Any]:
  risks, solves = problem.risks, step.solves
  constants = bounds.measure(risks, solves)
  found = constants._asdict()
  row = {
    'round': step.round_num,
    'theorem_2': np.nanmax(found.pop('gradient_ratios')),
    'theorem_3': found.pop('distance_ratios').max(),
    'theorem_3_safe': found.pop('safe_distance_ratios').max(),
    'assumption_1': bool(np.isfinite(constants.gamma_0)),
    'assumption_2': bool(np.isfinite(constants.beta)),
    'assumption_4': constants.alpha_0 > 0,
    **found,
    'misassignment': quadratic_risks.misassignment(
      solves.centers, problem.examples
    ),
  }
  for name, centers in (
    ('center_error', solves.centers),
    ('mixing_error', problem.fixed_centers(problem.mixture)),
    ('estimation_error', problem.fixed_centers(step.importance)),
  ):
    distances = np.linalg.norm(centers - risks.minimizers, axis=1)
    row[name] = distances.mean() / constants.max_gap
  if solves.proximal_weight:
    descent = bounds.descent(
      risks,
      solves,
      constants,
      problem.mixture,
      problem.num_examples,
      misassignment=row['misassignment'],
      smoother=problem.options.importance_smoother,
      num_draws=problem.num_draws,
    )
    row.update(rho=descent.rho.min(), floor=descent.floor.max())
  return row
