"""FedEM on linear regression, written from the paper in NumPy float64.

Marfoq et al., "Federated Multi-Task Learning under a Mixture of Distributions"
(2021), Algorithm 1. It shares with the library only `core.seeds` (so that both
draw alike) and, written a second time, the hash that shuffles examples. Models
are plain vectors; each is trained by itself, its gradients written out by hand.
"""

from typing import NamedTuple

import numpy as np

from tests.testing import cohorts, index_hash
from tff_algos.core import seeds


class Round(NamedTuple):
  """What one round left behind.

  Attributes:
    centers: `[M, P]`.
    memberships: `[N, M]`.
    loss: Mean over the examples, as the clients met them, of the squared error
      under each model times the chance that it is the example's.
    mixture_loss: Mean over the examples of the cohort of their negative
      log-likelihood, before they were trained on.
  """

  centers: np.ndarray
  memberships: np.ndarray
  loss: float
  mixture_loss: float


def run(clients, client_ids, centers, config, num_rounds, seed):
  """Returns a list of `Round`s.

  Args:
    clients: A list of (x `[n, P]`, y `[n]`); n may be 0.
    client_ids: Their names, for the seeds.
    centers: Of round 0, `[M, P]`.
    config: The library's `FedEmConfig`.
    num_rounds: K.
    seed: The run's seed.
  """
  centers = np.array(centers, np.float64)
  available = np.flatnonzero([len(y) for _, y in clients])
  memberships = np.full(
    (len(clients), config.num_clusters), 1 / config.num_clusters
  )
  rounds = []
  for t in range(1, num_rounds + 1):
    drawn = cohorts.drawn(seed, t, available, config.cohort_size)
    uploads, weights, met, unlikely = [], [], [], []
    for k in drawn:
      x, y = clients[k]
      shares, surprise = _expect(x, y, centers, memberships[k], config)
      unlikely.extend(surprise)
      memberships[k] = shares.mean(axis=0)
      client_seed = seeds.derive_seed(seed, 'train', t, client_ids[k])
      solved = [
        _solve(x, y, shares[:, s], centers[s], config, client_seed)
        for s in range(config.num_clusters)
      ]
      uploads.append([center for center, _ in solved])
      weights.append(len(y) if config.weighting == 'examples' else 1)
      met.extend(sum(losses for _, losses in solved))
    centers = np.average(uploads, axis=0, weights=weights)
    rounds.append(
      Round(centers, memberships.copy(), np.mean(met), np.mean(unlikely))
    )
  return rounds


def _expect(x, y, centers, membership, config):
  """Each example's chances `[n, M]` and its negative log-likelihood `[n]`."""
  logs = np.log(membership) - config.loss_scale * (
    (x @ centers.T - y[:, np.newaxis]) ** 2
  )
  largest = logs.max(axis=1, keepdims=True)
  likelihoods = np.exp(logs - largest)
  total = likelihoods.sum(axis=1, keepdims=True)
  return likelihoods / total, -(largest + np.log(total))[:, 0]


def _solve(x, y, shares, center, config, seed):
  """One model of one client, and the weighted squared errors that it met."""
  w, met = center.copy(), []
  first, second, num_steps = np.zeros_like(w), np.zeros_like(w), 0
  training = config.local_training
  for rows in index_hash.batches(
    seed, training.num_local_epochs, len(y), training.batch_size
  ):
    errors = x[rows] @ w - y[rows]
    met.extend(shares[rows] * errors**2)
    gradient = x[rows].T @ (shares[rows] * errors) / len(rows)
    gradient *= 2 * config.loss_scale
    step = gradient
    if training.optimizer.name == 'adam':
      num_steps += 1
      first = 0.9 * first + 0.1 * gradient
      second = 0.999 * second + 0.001 * gradient**2
      step = (first / (1 - 0.9**num_steps)) / (
        np.sqrt(second / (1 - 0.999**num_steps)) + 1e-8
      )
    w = w - training.optimizer.learning_rate * step
  return w, np.array(met)
