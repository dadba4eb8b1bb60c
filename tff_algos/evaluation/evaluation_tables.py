"""Tables of an evaluation by cluster or by ground-truth source."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.evaluation import association, recovery
from tff_algos.evaluation import evaluator as evaluator_lib

Rows = list[dict[str, Any]]


def center_rows(
  metrics: Mapping[str, float],
  source_names: tuple[str, ...],
  algorithm: algorithm_lib.FederatedAlgorithm,
) -> Rows:
  """Returns the score and the loss of every cluster model on every source.

  Args:
    metrics: `Evaluation.metrics`.
    source_names: Of the dataset.
    algorithm: The evaluated algorithm.
  """
  return [
    {
      'source': source,
      'cluster_id': cluster_id,
      **{
        key: metrics[f'held_out/{source}/cluster_{cluster_id}/{key}']
        for key in (algorithm.cluster_model.score_name, 'loss')
      },
    }
    for source in source_names
    for cluster_id in range(algorithm.num_clusters)
  ]


def association_rows(
  memberships: np.ndarray, planted: evaluator_lib.Planted
) -> Rows:
  """Returns one row per planted source: its clients' clusters and memberships.

  Args:
    memberships: `[num_clients, num_clusters]`.
    planted: The ground truth.
  """
  found = association.associate(memberships, planted.mixture)
  return [
    {
      'main_source': name,
      'num_clients': int(found.num_clients[row]),
      **_numbered('num_main_cluster_', found.num_by_cluster[row].tolist()),
      **_numbered('mean_membership_', found.mean_membership[row].tolist()),
    }
    for row, name in enumerate(planted.names)
  ]


def matched_sources(
  centers: Rows,
  score_name: str,
  memberships: np.ndarray | None,
  planted: evaluator_lib.Planted | None,
  *,
  higher_is_better: bool,
) -> list[str | None]:
  """Returns the source that each cluster is matched with.

  Matched by the clients' memberships if a mixture was planted, else by scores.

  Args:
    centers: Of `center_rows`.
    score_name: Such as `'accuracy'`.
    memberships: `[num_clients, num_clusters]`, or None with one cluster.
    planted: The ground truth; None without one.
    higher_is_better: Whether a larger score is better.

  Returns:
    Name of a source for each cluster, each name at most once; None if the
    cluster is unmatched.
  """
  if memberships is not None and planted is not None:
    names = planted.names
    matched = recovery.match_clusters(memberships, planted.mixture)
  else:
    names, scores = _scores(centers, score_name)
    matched = association.match_by_scores(
      scores, higher_is_better=higher_is_better
    )
  return [
    None if source == recovery.UNMATCHED else names[source]
    for source in matched
  ]


def _scores(
  centers: Rows, score_name: str
) -> tuple[tuple[str, ...], np.ndarray]:
  """Returns the sources' names, and scores `[num_clusters, num_sources]`."""
  names = tuple(dict.fromkeys(row['source'] for row in centers))
  scores = np.array([row[score_name] for row in centers])
  return names, scores.reshape(len(names), -1).T


def _numbered(prefix: str, values: list[Any]) -> dict[str, Any]:
  return {f'{prefix}{index}': value for index, value in enumerate(values)}
