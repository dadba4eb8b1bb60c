"""Scores of exported models on a dataset, client by client.

Candidate and champion are scored by the same function on the same examples,
each client by the model that serves it.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from pipelines.scoring import bundles, model_choice
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Array
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema

# Each client by its personalized model if there is one, else by the cluster
# model with the lowest loss on its training examples.
SCORING = model_choice.ScoringConfig()


class Exported(NamedTuple):
  """Exported models, loaded.

  Attributes:
    found: Their bundles.
    loaded: The loaded models.
    known: Clients with a personalized model.
    num_clusters: Number of cluster models.
  """

  found: tuple[bundles.Bundle, ...]
  loaded: bundles.LoadedBundles
  known: Collection[str]
  num_clusters: int


class Scores(NamedTuple):
  """Scores of two models on the test examples of one client.

  Attributes:
    client_id: The client.
    group: `'participating'` or `'unseen'`.
    is_known: Whether the champion has a personalized model of it.
    cluster_id: The candidate's cluster with the lowest loss on its training
      examples; -1 if it has none.
    planted: Its planted cluster; -1 if the dataset has none.
    source: Source distribution of each example, `[n]`.
    weights: Weight of each example in a mean of scores, `[n]`.
    champion: Score of each example by the champion, `[n]`.
    candidate: By the candidate, `[n]`.
  """

  client_id: str
  group: str
  is_known: bool
  cluster_id: int
  planted: int
  source: Array
  weights: Array
  champion: Array
  candidate: Array

  def means(self, source: int | None = None) -> tuple[float, float] | None:
    """Returns the mean scores of champion and candidate.

    Args:
      source: Takes only examples of this source distribution.

    Returns:
      None without scored examples.
    """
    is_scored = self.weights > 0
    if source is not None:
      is_scored &= self.source == source
    if not is_scored.any():
      return None
    # Selected, as NaN times a weight of 0 is NaN.
    weights = self.weights[is_scored]
    return (
      float(np.average(self.champion[is_scored], weights=weights)),
      float(np.average(self.candidate[is_scored], weights=weights)),
    )


def load(found: list[bundles.Bundle]) -> Exported:
  """Loads the bundles of `bundles.find`.

  Raises:
    Exception: Of any kind, as TensorFlow raises for damaged files.
  """
  return Exported(
    tuple(found),
    bundles.load(found),
    bundles.client_ids(found),
    max(bundle.manifest.get('num_clusters', 1) for bundle in found),
  )


def score_clients(
  champion: Exported,
  candidate: Exported,
  dataset: dataset_lib.FederatedDataset,
  model: model_lib.Model,
) -> list[Scores]:
  """Scores the test examples of all clients, participating ones first.

  Clients without test examples are left out, and those without training
  examples that one of the two has no personalized model of.
  """
  groups = (
    (schema.PARTICIPATING, dataset.client_ids),
    (schema.UNSEEN, dataset.unseen_client_ids),
  )
  found = []
  for group, client_ids in groups:
    planted = dataset.true_clusters(group)
    for row, client_id in enumerate(client_ids):
      test = dataset.examples(client_id, SCORING.split)
      train = dataset.examples(client_id, SCORING.pick_split)
      is_known = client_id in champion.known
      if not test.num_examples or not (
        train.num_examples or (is_known and client_id in candidate.known)
      ):
        continue
      cluster_id = -1
      if train.num_examples:
        cluster_id = candidate.loaded.pick(train.x, train.y, SCORING.max_rows)
      champion_scores, candidate_scores = (
        _score(one, client_id, test, train, model)
        for one in (champion, candidate)
      )
      found.append(
        Scores(
          client_id=client_id,
          group=group,
          is_known=is_known,
          cluster_id=cluster_id,
          planted=-1 if planted is None else int(planted[row]),
          source=test.source,
          weights=_weights(model, test.y),
          champion=champion_scores,
          candidate=candidate_scores,
        )
      )
  return found


def best_cluster_scores(
  exported: Exported,
  examples: schema.Examples,
  model: model_lib.Model,
) -> Array:
  """Returns the scores of the best cluster model on the scored examples."""
  is_scored = _weights(model, examples.y) > 0
  scores = []
  for cluster_id in range(exported.num_clusters):
    choice = model_choice.Choice(model_choice.CLUSTER, cluster_id, 'default')
    request = bundles.Request('', choice, examples.x, examples.y)
    answer = exported.loaded.answer(request, SCORING.max_rows)
    scores.append(_example_scores(model, answer, examples.y)[is_scored])
  sign = -1 if model.higher_is_better else 1
  # NaN last: no comparison with NaN holds.
  return min(
    scores, key=lambda one: (bool(np.isnan(one).any()), sign * np.sum(one))
  )


def _score(
  exported: Exported,
  client_id: str,
  test: schema.Examples,
  train: schema.Examples,
  model: model_lib.Model,
) -> Array:
  choice = model_choice.choose(client_id, SCORING, exported.known, {})
  request = bundles.Request(client_id, choice, test.x, test.y, train.x, train.y)
  answer = exported.loaded.answer(request, SCORING.max_rows)
  return _example_scores(model, answer, test.y)


def _example_scores(
  model: model_lib.Model, answer: bundles.Answer, y: Array
) -> Array:
  """Returns the score of each example, float64 `[n]`; NaN if not finite."""
  if model.higher_is_better:
    outputs = answer.outputs['logits']
  else:
    outputs = answer.outputs['prediction'][:, np.newaxis]
  labels = tf.constant(y, model.label_dtype)
  scores = model.example_scores(tf.constant(outputs), labels)
  # The class of NaN logits would be 0, right for every label 0.
  is_finite = np.isfinite(outputs).all(axis=tuple(range(1, outputs.ndim)))
  return np.where(is_finite, scores.numpy().astype(np.float64), np.nan)


def _weights(model: model_lib.Model, y: Array) -> Array:
  labels = tf.constant(y, model.label_dtype)
  return model.score_weights(labels, tf.ones(len(y))).numpy()
