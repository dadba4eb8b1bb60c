"""Single rounds of a trained FedSoft on linear regressions, and their problem.

What the theorems of its paper speak of: quadratic risks of the sources, clients
that are mixtures of them, and in a round the local solves from given centres.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tff_algos.algorithms.fed_soft import bounds, fed_soft, quadratic_risks
from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.evaluation import recovery
from tff_algos.experiments import session, starts
from tff_algos.experiments.analyses import linear_models
from tff_algos.training import loop


class Problem(NamedTuple):
  """What is the same in every round; sources in the dataset's order.

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
    """Returns K, clients drawn a cluster; infinity if everybody takes part."""
    size = self.options.cohort_size_per_cluster
    without = self.options.selection == 'without_replacement'
    everyone = without and size == np.count_nonzero(self.num_examples)
    if everyone or self.options.selection == 'weighted_full':
      return np.inf
    return size

  def fixed_centers(self, importance: np.ndarray) -> np.ndarray:
    """Returns `quadratic_risks.fixed_centers` for this importance."""
    return quadratic_risks.fixed_centers(
      *(self.risks, self.mixture, importance, self.num_examples),
      self.options.proximal_weight,
    )


class Step(NamedTuple):
  """One round that was run once more; clusters in the order of the sources.

  Attributes:
    round_num: The round that it started from.
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
  examples = []
  for source in range(num_sources):
    examples.append(linear_models.rows_of(dataset.held_out(source), use_bias))
  try:
    risks = quadratic_risks.of_least_squares(examples, options.loss_scale)
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

  Nothing of these rounds is kept. A cluster stands for the source that the
  round's importance matches it with.

  Raises:
    CheckpointError: If there is no checkpoint.
  """
  everyone = np.arange(len(problem.mixture))
  store, seed = opened.store, opened.config.seed
  for round_num, start in starts.starts(opened):
    before = np.array(store.load(everyone).num_updates)
    server_state, _ = loop.run_round(
      *(opened.algorithm, opened.runtime, opened.source, store),
      *(start, round_num + 1, seed),
    )
    after = store.load(everyone)
    trained = np.asarray(after.num_updates) > before
    importance = np.asarray(server_state.importance_weights, np.float64)
    order = np.argsort(recovery.match_clusters(importance, problem.mixture))
    importance = importance[:, order]
    solves = bounds.LocalSolves(
      local_models=linear_models.vectors(after.personalized_weights)[trained],
      centers=linear_models.vectors(start.cluster_models)[order],
      mixture=problem.mixture[trained],
      importance=importance[trained],
      proximal_weight=problem.options.proximal_weight,
    )
    store.discard()
    yield Step(round_num, solves, importance)
