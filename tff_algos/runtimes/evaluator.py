"""Evaluates a server state and the client states on a dataset.

The rules, whatever the algorithm: only held-out examples count as a result
(training accuracy is reported beside it, under its own name); an unseen
client chooses its cluster on its training part, never with test labels; all
clients count, with example-weighted and plain means and the worst decile; and
the majority-class line stands beside every accuracy.

Metric names read `<clients>/<split>/<model>/<metric>`.
"""

from typing import Any, NamedTuple

import numpy as np

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.metrics import recovery, statistics, summaries
from tff_algos.runtimes import client_sources, client_state_store, interrupts
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.stages import evaluation

Structure = Any


class Evaluation(NamedTuple):
  """What an evaluation found.

  Attributes:
    metrics: name -> value.
    clients: One mapping a client, participating ones first.
  """

  metrics: dict[str, float]
  clients: list[dict[str, Any]]


class Evaluator:
  """Runs the evaluation phases on all splits of a dataset."""

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    dataset: dataset_lib.FederatedDataset,
    runtime: cohort_lib.Runtime,
    store: client_state_store.ClientStateStore,
  ):
    """Prepares the evaluation of one run.

    Args:
      algorithm: What is trained.
      dataset: What it is trained on.
      runtime: Entered already.
      store: The client states.
    """
    self._algorithm = algorithm
    self._model = algorithm.cluster_model
    self._dataset = dataset
    self._runtime = runtime
    self._store = store
    self._clusters = evaluation.build_cluster_evaluation(algorithm)
    self._personalized = evaluation.build_personalized_evaluation(algorithm)
    self._splits = {
      split: client_sources.DatasetSource(dataset, split)
      for split in schema.SPLITS
    }
    self._unseen = {
      split: client_sources.DatasetSource(dataset, split, unseen=True)
      for split in (schema.TRAIN, schema.TEST)
    }
    self._held_out = client_sources.HeldOutSource(dataset)

  @property
  def selection_metric(self) -> str:
    """Returns the validation metric that chooses the best round."""
    name = self._model.score_name
    return f'participating/validation/personalized/{name}'

  @property
  def higher_is_better(self) -> bool:
    """Returns whether a larger score is a better one."""
    return self._model.task == model_lib.CLASSIFICATION

  def evaluate(self, server_state: Structure) -> Evaluation:
    """Evaluates one server state with the store's committed states.

    Args:
      server_state: NumPy.
    """
    metrics, clients = self._evaluate_participating(server_state)
    metrics.update(self._evaluate_held_out(server_state))
    if self._dataset.unseen_client_ids:
      unseen_metrics, unseen = self._evaluate_unseen(server_state)
      metrics.update(unseen_metrics)
      clients += unseen
    return Evaluation(metrics, clients)

  def majority_class(self) -> dict[str, float]:
    """Returns the accuracy of always saying the majority class, on test.

    `per_client` says each client's own majority class of its training part,
    `global` the one of all clients. Empty for regression.
    """
    if self._model.task != model_lib.CLASSIFICATION:
      return {}
    train, test = (
      summaries.label_histograms(
        [source.examples(i).y for i in range(source.population.num_clients)],
        self._model.num_outputs,
      )
      for source in (self._splits[schema.TRAIN], self._splits[schema.TEST])
    )
    scores = summaries.majority_class_scores(train, test)
    sizes = self._splits[schema.TEST].population.num_examples
    return {
      name: summaries.summarize(
        values, sizes, higher_is_better=True
      ).weighted_mean
      for name, values in (
        ('per_client', scores.per_client),
        ('global', scores.overall),
      )
    }

  def _evaluate_participating(self, server_state):
    name = self._model.score_name
    metrics = {}
    clients = [
      {'client_id': client_id, 'group': schema.PARTICIPATING}
      for client_id in self._dataset.client_ids
    ]
    for split, source in self._splits.items():
      personalized = self._run(self._personalized, server_state, source)
      clusters = self._run(self._clusters, server_state, source)
      membership = personalized['membership']
      cluster_ids = np.argmax(membership, axis=1)
      rows = np.arange(len(cluster_ids))
      sizes = source.population.num_examples
      for kind, values in (
        ('personalized', statistics.value_of(personalized['score'])),
        ('cluster', statistics.value_of(clusters['score'])[rows, cluster_ids]),
      ):
        metrics.update(
          self._summarize(f'participating/{split}/{kind}', values, sizes)
        )
        for row, value in zip(clients, values, strict=True):
          row[f'{split}_{kind}_{name}'] = value
      for row, size in zip(clients, sizes, strict=True):
        row[f'num_{split}_examples'] = int(size)
    mixture = self._dataset.true_mixture()
    self._add_memberships(clients, membership, mixture)
    if mixture is not None and self._algorithm.num_clusters > 1:
      metrics.update(_recovery(membership, mixture))
    return metrics, clients

  def _evaluate_held_out(self, server_state):
    scores = self._run(self._clusters, server_state, self._held_out)
    metrics, table = {}, []
    for source, source_name in enumerate(self._dataset.source_names):
      pieces = self._held_out.source_index == source
      for key, stat in (
        (self._model.score_name, scores['score']),
        ('loss', scores['loss']),
      ):
        values = statistics.value_of(
          statistics.MeanStat(
            stat.total[pieces].sum(axis=0), stat.weight[pieces].sum(axis=0)
          )
        )
        for cluster_id, value in enumerate(values):
          metrics[f'held_out/{source_name}/cluster_{cluster_id}/{key}'] = value
        if key == self._model.score_name:
          table.append(np.sort(values)[:: -1 if self.higher_is_better else 1])
    best_first = np.mean(table, axis=0)
    name = self._model.score_name
    metrics[f'held_out/mean/best_cluster/{name}'] = best_first[0]
    if len(best_first) > 1:
      others = best_first[1:].mean()
      metrics[f'held_out/mean/other_clusters/{name}'] = others
    return metrics

  def _evaluate_unseen(self, server_state):
    name = self._model.score_name
    train, test = (
      self._run(self._clusters, server_state, source)
      for source in self._unseen.values()
    )
    losses = statistics.value_of(train['loss'])
    losses = np.where(np.isnan(losses), np.inf, losses)
    cluster_ids = np.argmin(losses, axis=1)
    rows = np.arange(len(cluster_ids))
    values = statistics.value_of(test['score'])[rows, cluster_ids]
    sizes = self._unseen[schema.TEST].population.num_examples
    metrics = self._summarize('unseen/test/cluster', values, sizes)
    clients = [
      {
        'client_id': client_id,
        'group': schema.UNSEEN,
        'num_test_examples': int(size),
        f'test_cluster_{name}': value,
      }
      for client_id, size, value in zip(
        self._dataset.unseen_client_ids, sizes, values, strict=True
      )
    ]
    chosen = np.eye(self._algorithm.num_clusters)[cluster_ids]
    self._add_memberships(clients, chosen, self._dataset.true_unseen_mixture())
    return metrics, clients

  def _summarize(self, prefix, values, sizes):
    summary = summaries.summarize(
      values, sizes, higher_is_better=self.higher_is_better
    )
    name = f'{prefix}/{self._model.score_name}'
    return {
      name: summary.weighted_mean,
      f'{name}_plain_mean': summary.plain_mean,
      f'{name}_worst_decile': summary.worst_decile,
      f'{name}_num_nan': summary.num_nan,
    }

  def _add_memberships(self, clients, membership, mixture):
    for i, row in enumerate(clients):
      row['cluster_id'] = int(np.argmax(membership[i]))
      for s, value in enumerate(membership[i]):
        row[f'membership_{s}'] = float(value)
      for m, value in enumerate(mixture[i] if mixture is not None else ()):
        row[f'true_mixture_{m}'] = float(value)

  def _run(self, phase, server_state, source):
    """Runs an evaluation phase on everyone; returns its rows."""
    indices = np.arange(source.population.num_clients, dtype=np.int32)
    inputs = indices if phase.uses_client_state else ()
    call = algorithm_lib.PhaseCall(
      phase.name, indices, inputs, algorithm_lib.Cost()
    )
    cohort = cohort_lib.Cohort(call, 0, 0, source, self._store.load)
    with interrupts.held():
      return self._runtime.run(phase, server_state, cohort).server_metrics


def _recovery(membership, mixture):
  """Returns how well the memberships recover the planted mixtures."""
  found = recovery.recovery(
    recovery.hard_labels(membership), recovery.hard_labels(mixture)
  )
  values = {
    **found._asdict(),
    'error': recovery.membership_error(membership, mixture),
  }
  return {
    f'participating/membership/{key}': value for key, value in values.items()
  }
