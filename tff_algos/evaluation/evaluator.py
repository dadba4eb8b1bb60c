"""Evaluation of a server state and client states on a dataset.

The rules are the same for all algorithms: results are metrics on held-out
examples (training accuracy is reported separately, under its own name); an
unseen client chooses its cluster on its training split, never with test labels;
scores of clients are summarized by example-weighted mean, plain mean and worst
decile, those of the honest clients of an attack by the first alone; and
accuracies of participating clients' tests and held-out examples are reported
with the majority-class baseline.

Metric names have the form `<clients>/<split>/<model>/<metric>`.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.evaluation import (
  association,
  cluster_losses,
  recovery,
  summaries,
)
from tff_algos.numerics import statistics
from tff_algos.rounds import evaluation
from tff_algos.runtimes import client_sources, interrupts
from tff_algos.runtimes import cohort as cohort_lib

# Client states that an evaluation holds at a time.
_STATES_BYTES = 1 << 28


@dataclasses.dataclass(frozen=True)
class ClientTable:
  """Values of each client; iterates over clients, each a mapping by name.

  Attributes:
    groups: For each group of clients, name -> a value of each client.
  """

  groups: Sequence[dict[str, Sequence[Any] | np.ndarray]]

  def __iter__(self) -> Iterator[dict[str, Any]]:
    for columns in self.groups:
      for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


class Evaluation(NamedTuple):
  """Result of an evaluation.

  Attributes:
    metrics: name -> value.
    clients: Values of each client, participating clients first.
    memberships: Of the participating clients, float32 `[num_clients,
      num_clusters]`; None with a single cluster.
  """

  metrics: dict[str, float]
  clients: ClientTable = ClientTable(())
  memberships: np.ndarray | None = None


class Planted(NamedTuple):
  """Ground-truth mixtures or clusters, to compare memberships with.

  Attributes:
    names: Of the source distributions, or of the planted clusters if the
      partition has planted clusters.
    mixture: Each participating client's shares of them, float64 `[num_clients,
      len(names)]`.
    unseen_mixture: The same of the unseen clients.
  """

  names: tuple[str, ...]
  mixture: np.ndarray
  unseen_mixture: np.ndarray


class ClientStates(Protocol):
  """The part of a client state store that an evaluation reads."""

  def load(self, client_indices: np.ndarray) -> Any:
    """Returns the states of some clients, stacked `[n, ...]`."""
    ...

  def has_state(self) -> np.ndarray:
    """Returns which clients have a stored state, bool `[num_clients]`."""
    ...

  def state_bytes(self) -> int:
    """Returns the size of a client's state."""
    ...


class Evaluator:
  """Runs the evaluation phases on all splits of a dataset."""

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    dataset: dataset_lib.FederatedDataset,
    runtime: cohort_lib.Runtime,
    store: ClientStates,
    is_attacker: np.ndarray | None = None,
    training: cohort_lib.ClientSource | None = None,
  ):
    """Prepares the evaluation of one run.

    Args:
      algorithm: The trained algorithm.
      dataset: The dataset of its training.
      runtime: Already entered as a context manager.
      store: The client states.
      is_attacker: Which participating clients attack, bool `[num_clients]`;
        None if no client does.
      training: Training examples, as the training reads them, so that runtimes
        hold them once; None to read them from the dataset.
    """
    self._is_attacker = is_attacker
    self._algorithm = algorithm
    self._model = algorithm.cluster_model
    self._dataset = dataset
    self._runtime = runtime
    self._store = store
    self._clusters = evaluation.build_cluster_evaluation(algorithm)
    self._personalized = evaluation.build_personalized_evaluation(algorithm)
    if algorithm.newcomers:
      self._fit = evaluation.build_newcomer_fit(algorithm.newcomers)
      self._newcomers = evaluation.build_newcomer_evaluation(
        algorithm, algorithm.newcomers
      )
    self._splits: dict[str, cohort_lib.ClientSource] = {
      split: client_sources.DatasetSource(dataset, split)
      for split in schema.SPLITS
    }
    if training is not None:
      self._splits[schema.TRAIN] = training
    self._unseen = {
      split: client_sources.DatasetSource(dataset, split, unseen=True)
      for split in (schema.TRAIN, schema.TEST)
    }
    self._held_out = client_sources.HeldOutSource(dataset)

  @property
  def selection_metric(self) -> str:
    """Returns the name of the validation metric that selects the best round."""
    name = self._model.score_name
    return f'participating/validation/personalized/{name}'

  def evaluate(self, server_state: Structure) -> Evaluation:
    """Evaluates one server state with the store's states, staged ones included.

    Args:
      server_state: Structure of NumPy arrays.
    """
    metrics, columns, memberships, weights = self._evaluate_participating(
      server_state
    )
    metrics.update(self._evaluate_held_out(server_state))
    groups = [columns]
    if self._dataset.unseen_client_ids:
      unseen_metrics, unseen = self._evaluate_unseen(server_state)
      metrics.update(unseen_metrics)
      groups.append(unseen)
    if self._is_attacker is not None and self._is_attacker.any():
      columns['is_attacker'] = self._is_attacker.astype(int)
      metrics.update(self._score_honest(columns, weights, ~self._is_attacker))
    if self._algorithm.num_clusters == 1:
      memberships = None
    return Evaluation(metrics, ClientTable(groups), memberships)

  @functools.cached_property
  def planted(self) -> Planted | None:
    """Returns the planted truth; None if there is none to recover.

    A single source distribution, or a single planted cluster, is none.
    """
    data = self._dataset
    mixture, unseen = (data.true_mixture(group) for group in schema.GROUPS)
    if mixture is not None and unseen is not None and mixture.shape[1] > 1:
      return Planted(data.source_names, mixture, unseen)
    known, unseen = (data.true_clusters(group) for group in schema.GROUPS)
    if known is None or unseen is None:
      return None
    clusters = known, unseen
    count = 1 + np.concatenate(clusters).max()
    if count == 1:
      return None
    # A client belongs to one planted cluster with a share of 1.
    one_hot = np.eye(count)
    return Planted(
      tuple(f'planted cluster {index}' for index in range(count)),
      *(one_hot[rows] for rows in clusters),
    )

  def majority_class(self) -> dict[str, float]:
    """Returns the accuracy of always predicting the majority class.

    On the clients' test examples, `per_client` predicts the majority class of
    each client's training examples, and `global` that of all clients'. On the
    held-out examples of a source, `held_out/<source>` predicts their own
    majority class; NaN without such examples. Empty for regression, and where
    an example has labels at several places.
    """
    if self._model.task != model_lib.CLASSIFICATION or self._model.label_shape:
      return {}
    train, test = (
      summaries.label_histograms(
        [examples.y for examples in source.stream()],
        self._model.num_outputs,
      )
      for source in (self._splits[schema.TRAIN], self._splits[schema.TEST])
    )
    found = summaries.majority_scores(train, test)
    for index, source in enumerate(self._dataset.source_names):
      labels = self._dataset.held_out(index).y
      found[f'held_out/{source}'] = summaries.majority_share(labels)
    return found

  def _evaluate_participating(self, server_state):
    name = self._model.score_name
    metrics, weights = {}, {}
    columns = _group(schema.PARTICIPATING, self._dataset.client_ids)
    for split, source in self._splits.items():
      clusters = self._run(self._clusters, server_state, source)
      personalized = self._score_personalized(server_state, source, clusters)
      membership = personalized['membership']
      cluster_ids = np.argmax(membership, axis=1)
      sizes = source.population.num_examples
      losses, scores = (
        {
          'personalized': personalized[key],
          'cluster': _at(clusters[key], cluster_ids),
        }
        for key in ('loss', 'score')
      )
      if 'local_score' in personalized:
        losses['local'] = personalized['local_loss']
        scores['local'] = personalized['local_score']
      for kind, stat in losses.items():
        summary = summaries.summarize(
          statistics.value_of(stat),
          self._num_scored(stat, stat, sizes),
          higher_is_better=False,
        )
        loss = f'participating/{split}/{kind}/loss'
        metrics[loss] = summary.weighted_mean
        metrics[f'{loss}_num_nan'] = summary.num_nan
      for kind, stat in scores.items():
        values = statistics.value_of(stat)
        counts = self._num_scored(stat, losses[kind], sizes)
        weights[split, kind] = counts
        metrics.update(
          self._summarize(f'participating/{split}/{kind}', values, counts)
        )
        columns[f'{split}_{kind}_{name}'] = values
      columns[f'num_{split}_examples'] = sizes
    columns['has_state'] = self._store.has_state().astype(int)
    mixture = self.planted.mixture if self.planted else None
    _add_memberships(columns, membership, mixture)  # pyright: ignore[reportPossiblyUnboundVariable]
    if mixture is not None and self._algorithm.num_clusters > 1:
      metrics.update(_recovery(membership, mixture))  # pyright: ignore[reportPossiblyUnboundVariable]
    return metrics, columns, membership, weights  # pyright: ignore[reportPossiblyUnboundVariable]

  def _score_personalized(
    self, server_state, source, clusters
  ) -> dict[str, Any]:
    """Returns rows of the personalized phase; runs it unless `serves_global`.

    Args:
      server_state: Structure of NumPy arrays.
      source: Clients and examples.
      clusters: Rows of the cluster phase on them.
    """
    if not self._algorithm.serves_global:
      return self._run(self._personalized, server_state, source)
    num_clients = source.population.num_clients
    everyone = np.zeros(num_clients, int)
    return {
      'loss': _at(clusters['loss'], everyone),
      'score': _at(clusters['score'], everyone),
      'membership': np.ones([num_clients, 1], np.float32),
    }

  def _score_honest(self, columns, weights, is_honest):
    """Returns the mean scores of the participating clients that do not attack.

    Args:
      columns: Of the participating clients.
      weights: (split, model) -> weight of each client in a mean.
      is_honest: bool `[num_clients]`.
    """
    metrics = {}
    for split, kind in itertools.product(
      schema.SPLITS, ('personalized', 'cluster')
    ):
      summary = summaries.summarize(
        columns[f'{split}_{kind}_{self._model.score_name}'][is_honest],
        weights[split, kind][is_honest],
        higher_is_better=self._model.higher_is_better,
      )
      name = f'attack/honest/{split}/{kind}/{self._model.score_name}'
      metrics[name] = summary.weighted_mean
      metrics[f'{name}_num_nan'] = summary.num_nan
    return metrics

  def _evaluate_held_out(self, server_state):
    nothing: Any = np.zeros([0, self._algorithm.num_clusters])
    scores = dict.fromkeys(
      ('score', 'loss'), statistics.MeanStat(nothing, nothing)
    )
    if self._held_out.population.num_clients:
      scores = self._run(self._clusters, server_state, self._held_out)
    metrics, table = {}, []
    for source, source_name in enumerate(self._dataset.source_names):
      pieces = self._held_out.source_index == source
      # Not that of the pieces on which the model happens to be finite.
      is_invalid = (scores['loss'].weight[pieces] == 0).any(axis=0)
      for key, stat in (
        (self._model.score_name, scores['score']),
        ('loss', scores['loss']),
      ):
        values = statistics.value_of(
          statistics.MeanStat(
            stat.total[pieces].sum(axis=0), stat.weight[pieces].sum(axis=0)
          )
        )
        values = np.where(is_invalid, np.nan, values)
        for cluster_id, value in enumerate(values):
          metrics[f'held_out/{source_name}/cluster_{cluster_id}/{key}'] = value
        if key == self._model.score_name:
          table.append(values)
    table = np.stack(table, axis=1)
    sign = -1 if self._model.higher_is_better else 1
    best_first = sign * np.sort(sign * table, axis=0)  # NaN comes last.
    name = self._model.score_name
    metrics[f'held_out/mean/best_cluster/{name}'] = _known_mean(best_first[0])
    if self._algorithm.num_clusters > 1:
      others = _known_mean(best_first[1:])
      metrics[f'held_out/mean/other_clusters/{name}'] = others
      best = association.best_clusters(
        table, higher_is_better=self._model.higher_is_better
      )
      metrics['held_out/num_distinct_best_clusters'] = len(
        set(best) - {recovery.UNMATCHED}
      )
    return metrics

  def _evaluate_unseen(self, server_state):
    name = self._model.score_name
    source = self._unseen[schema.TEST]
    sizes = source.population.num_examples
    test = self._run(self._clusters, server_state, source)
    membership = self._unseen_memberships(server_state)
    # As for participating clients, the cluster of largest membership.
    chosen, loss = (
      _at(test[key], np.argmax(membership, axis=1)) for key in ('score', 'loss')
    )
    counts = self._num_scored(chosen, loss, sizes)
    scores = {'cluster': statistics.value_of(chosen)}
    if self._algorithm.newcomers:
      own = self._run(self._newcomers, server_state, source, membership)
      scores['personalized'] = statistics.value_of(own['score'])
    metrics = {}
    columns = _group(schema.UNSEEN, self._dataset.unseen_client_ids)
    columns['num_test_examples'] = sizes
    for kind, values in scores.items():
      metrics.update(self._summarize(f'unseen/test/{kind}', values, counts))
      columns[f'test_{kind}_{name}'] = values
    mixture = self.planted.unseen_mixture if self.planted else None
    _add_memberships(columns, membership, mixture)
    return metrics, columns

  def _num_scored(self, scores, losses, sizes):
    """Returns the clients' weights in a mean, int64 `[num_clients]`.

    Args:
      scores: MeanStat `[num_clients]`, of scores or losses.
      losses: Of the same model's losses; a finite one says that a client
        without a score has no label that is scored.
      sizes: Number of examples of each client, also the weight of an invalid
        score.
    """
    if not self._model.label_shape:
      return sizes
    unscored = np.where(losses.weight > 0, 0, sizes)
    return np.where(scores.weight > 0, scores.weight, unscored).astype(np.int64)

  def _unseen_memberships(self, server_state):
    """Returns memberships by training examples, `[num_clients, num_clusters]`.

    Fitted by the algorithm's newcomers phase if it has one; otherwise one-hot,
    the cluster of lowest training loss.
    """
    source = self._unseen[schema.TRAIN]
    if self._algorithm.newcomers:
      return self._run(self._fit, server_state, source)['membership']
    if self._algorithm.num_clusters == 1:
      return np.ones([source.population.num_clients, 1])
    losses = cluster_losses.of_clients(
      self._algorithm,
      self._runtime,
      server_state,
      source,
      source.population.all_clients,
    )
    return np.eye(self._algorithm.num_clusters)[np.argmin(losses, axis=1)]

  def _summarize(self, prefix, values, sizes):
    summary = summaries.summarize(
      values, sizes, higher_is_better=self._model.higher_is_better
    )
    name = f'{prefix}/{self._model.score_name}'
    return {
      name: summary.weighted_mean,
      f'{name}_plain_mean': summary.plain_mean,
      f'{name}_worst_decile': summary.worst_decile,
      f'{name}_num_nan': summary.num_nan,
    }

  def _run(self, phase, server_state, source, inputs=()):
    """Runs an evaluation phase on all clients; returns its rows."""
    indices = np.arange(source.population.num_clients, dtype=np.int32)
    if phase.uses_client_state:
      inputs = indices
    call = algorithm_lib.PhaseCall(
      phase.name, indices, inputs, algorithm_lib.Cost()
    )
    cohort = cohort_lib.Cohort(call, 0, 0, source, self._store.load)
    size = cohort.size
    if phase.uses_client_state:
      size = max(1, _STATES_BYTES // max(1, self._store.state_bytes()))
    rows = []
    for start in range(0, cohort.size, size):
      with interrupts.held():
        part = cohort.part(slice(start, start + size))
        rows.append(self._runtime.run(phase, server_state, part).server_metrics)
    return cohort_lib.concatenate(rows)


def _group(name: str, client_ids: Sequence[str]) -> dict[str, Any]:
  """Returns the first columns of a group of clients."""
  return {'client_id': client_ids, 'group': [name] * len(client_ids)}


def _at(stats: Any, cluster_ids: np.ndarray) -> statistics.MeanStat:
  """Returns each client's statistic of one cluster, `[num_clients]`.

  Args:
    stats: MeanStat `[num_clients, num_clusters]`.
    cluster_ids: Cluster of each client.
  """
  rows = np.arange(len(cluster_ids))
  return statistics.MeanStat(*(leaf[rows, cluster_ids] for leaf in stats))


def _known_mean(values: np.ndarray) -> float:
  """Returns the mean of the values that are not NaN; NaN without any."""
  known = values[~np.isnan(values)]
  return known.mean() if known.size else np.nan


def _add_memberships(columns, membership, mixture):
  columns['cluster_id'] = np.argmax(membership, axis=1)
  for s, values in enumerate(membership.T):
    columns[f'membership_{s}'] = values.astype(np.float64)
  for m, values in enumerate(mixture.T if mixture is not None else ()):
    columns[f'true_mixture_{m}'] = values


def _recovery(membership, mixture):
  """Returns how well the memberships recover the planted mixtures.

  Without measures of hard clusters if all clients have the same main source.
  """
  planted = recovery.hard_labels(mixture)
  agreement = {}
  if len(np.unique(planted)) > 1:
    found = recovery.recovery(recovery.hard_labels(membership), planted)
    agreement = found._asdict()
  values = {
    **agreement,
    'error': recovery.membership_error(membership, mixture),
    'num_undecided': int(
      (association.main_clusters(membership) == association.UNDECIDED).sum()
    ),
  }
  return {
    f'participating/membership/{key}': value for key, value in values.items()
  }
