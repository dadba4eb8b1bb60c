"""pFedKM and pFedMe on linear regression, in NumPy float64.

Written from Tang, Guo and Guo (2021), Algorithm 1, and Dinh et al. (2020). It
shares with the library only `core.seeds` (so that both draw alike) and, written
a second time, the hash that shuffles examples. Clusters are found by trying all
partitions, which is what k-means with many restarts comes to, if there is one
best; labels are matched by trying all permutations.
"""

import itertools
from typing import NamedTuple

import numpy as np

from tests.testing import cohorts, index_hash
from tff_algos.core import seeds


class Round(NamedTuple):
  """What one round left behind.

  Attributes:
    models: Group models, `[K, P]`.
    assignment: `[N]`.
    personalized: theta of each client, `[N, P]`; NaN before its first round.
    loss: Mean squared error of the examples as the clients met them.
    inertia: Of the best partition of what is clustered.
    margin: How much worse the second best partition is, relatively.
    moved: Share of the cohort that changed its cluster.
  """

  models: np.ndarray
  assignment: np.ndarray
  personalized: np.ndarray
  loss: float
  inertia: float
  margin: float
  moved: float


def run(clients, client_ids, start, config, num_rounds, seed):
  """Returns a list of `Round`s.

  Args:
    clients: A list of (x `[n, P]`, y `[n]`); n may be 0.
    client_ids: Their names, for the seeds.
    start: The common initial model, `[P]`.
    config: The library's `PFedKMConfig`.
    num_rounds: T.
    seed: The run's seed.
  """
  num_clusters = config.num_clusters
  models = np.tile(np.asarray(start, np.float64), (num_clusters, 1))
  assignment = np.arange(len(clients)) % num_clusters
  personalized = np.full((len(clients), len(start)), np.nan)
  sizes = np.array([len(y) for _, y in clients])
  rounds = []
  for t in range(1, num_rounds + 1):
    cohort = np.flatnonzero(sizes)
    if config.cohort_size:
      cohort = cohorts.drawn(seed, t, cohort, config.cohort_size)
    uploads, seen = [], []
    for i in cohort:
      client_seed = seeds.derive_seed(seed, 'train', t, client_ids[i])
      local, personalized[i], squares = _work(
        *clients[i], models[assignment[i]], config, client_seed
      )
      uploads.append(local)
      seen.extend(squares)
    uploads = np.array(uploads)
    compared = uploads
    if config.cluster_on == 'personalized_model':
      compared = personalized[cohort]
    labels, inertia, margin = _best_partition(compared, num_clusters)
    weights = sizes[cohort] if config.weighting == 'examples' else None
    before = assignment[cohort]
    labels = _align(before, labels, models, uploads, weights)
    for k in np.unique(labels):
      mean = _mean(uploads, weights, labels == k)
      models[k] += config.server_mixing * (mean - models[k])
    assignment[cohort] = labels
    rounds.append(
      Round(
        models.copy(),
        assignment.copy(),
        personalized.copy(),
        np.mean(seen),
        inertia,
        margin,
        np.mean(before != labels),
      )
    )
  return rounds


def _mean(uploads, weights, members):
  chosen = None if weights is None else weights[members]
  return np.average(uploads[members], axis=0, weights=chosen)


def _work(x, y, received, config, seed):
  """Algorithm 1, local update: w, theta, and the squared errors met."""
  w, theta = received.copy(), received.copy()
  squares = []
  training = config.local_training
  num_steps, pull = training.num_local_steps, training.proximal_weight
  batches = index_hash.batches(seed, num_steps, len(y), training.batch_size)
  for rows in itertools.islice(batches, num_steps):
    for _ in range(training.num_proximal_steps):
      errors = x[rows] @ theta - y[rows]
      squares.extend(errors**2)
      gradient = 2 * config.loss_scale * x[rows].T @ errors / len(rows)
      gradient += pull * (theta - w) + training.weight_decay * theta
      theta = theta - training.personal_learning_rate * gradient
    w = w - training.client_learning_rate * pull * (w - theta)
  return w, theta, squares


def _best_partition(points, num_clusters):
  """Returns labels, inertia and the relative margin to the second best."""
  if num_clusters == 1:
    labels = np.zeros(len(points), int)
    return labels, _inertia(points, labels), np.inf
  found = {}
  for rest in itertools.product(range(num_clusters), repeat=len(points) - 1):
    labels = np.array((0, *rest))
    # Only labels in order of appearance: each partition once.
    _, first = np.unique(labels, return_index=True)
    if len(first) == num_clusters and (np.diff(first) > 0).all():
      found[tuple(labels)] = _inertia(points, labels)
  best, second = sorted(found, key=found.get)[:2]
  margin = found[second] / found[best] - 1
  return np.array(best), found[best], margin


def _inertia(points, labels):
  return sum(
    ((points[labels == k] - points[labels == k].mean(axis=0)) ** 2).sum()
    for k in np.unique(labels)
  )


def _align(before, labels, models, uploads, weights):
  """Most clients keep their label; then smallest distances."""
  num_clusters = len(models)
  means = [_mean(uploads, weights, labels == k) for k in range(num_clusters)]

  def score(names):
    renamed = np.array(names)[labels]
    far = sum(
      ((means[k] - models[names[k]]) ** 2).sum() for k in range(num_clusters)
    )
    return (renamed == before).sum(), -round(far, 9)

  best = max(itertools.permutations(range(num_clusters)), key=score)
  return np.array(best)[labels]
