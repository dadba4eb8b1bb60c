"""Per-FedAvg on linear regression, written from the paper in NumPy float64.

Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning: A
Meta-Learning Approach" (2020), Algorithm 1 and its two approximations. It
shares with the library only `core.seeds` and, written a second time, the hash
that shuffles examples. Gradients and Hessians are written out by hand.
"""

from typing import NamedTuple

import numpy as np

from tests.testing import cohorts, index_hash
from tff_algos.core import seeds


class Round(NamedTuple):
  """What one round left behind.

  Attributes:
    model: w, `[P]`.
    personalized: w adapted to each client, `[N, P]`.
    loss: Mean squared error of the examples of all D' at the adapted points.
    personal_loss: That of all training examples, as the adapting steps met
      them.
  """

  model: np.ndarray
  personalized: np.ndarray
  loss: float
  personal_loss: float


def run(clients, client_ids, model, config, num_rounds, seed):
  """Returns a list of `Round`s.

  Args:
    clients: A list of (x `[n, P]`, y `[n]`); n may be 0.
    client_ids: Their names, for the seeds.
    model: Of round 0, `[P]`.
    config: The library's `PerFedAvgConfig`.
    num_rounds: How many.
    seed: The run's seed.
  """
  w = np.array(model, np.float64)
  available = np.flatnonzero([len(y) for _, y in clients])
  rounds = []
  for k in range(1, num_rounds + 1):
    drawn = cohorts.drawn(seed, k, available, config.cohort_size)
    uploads, seen = [], []
    for i in drawn:
      client_seed = seeds.derive_seed(seed, 'train', k, client_ids[i])
      upload, squares = _learn(*clients[i], w, config, client_seed)
      uploads.append(upload)
      seen.extend(squares)
    sizes = [len(clients[i][1]) for i in drawn]
    counts = sizes if config.weighting == 'examples' else None
    w = np.average(uploads, axis=0, weights=counts)
    adapted, met = zip(
      *(_adapt(x, y, w, config) for x, y in clients), strict=True
    )
    rounds.append(
      Round(w, np.array(adapted), np.mean(seen), np.mean(np.concatenate(met)))
    )
  return rounds


def _gradient(x, y, w, config):
  return 2 * config.loss_scale * x.T @ (x @ w - y) / max(len(y), 1)


def _learn(x, y, w, config, seed):
  """Lines 5-10: the model after tau steps, and the squared errors on D'."""
  tau, alpha = config.num_local_steps, config.inner_learning_rate
  squares = []
  for t in range(tau):
    inner, outer, curvature = (
      index_hash.shuffled(seed, t + j * tau, len(y))[: config.batch_size]
      for j in range(3)
    )
    adapted = w - alpha * _gradient(x[inner], y[inner], w, config)
    squares.extend((x[outer] @ adapted - y[outer]) ** 2)
    v = _gradient(x[outer], y[outer], adapted, config)
    rows, labels = x[curvature], y[curvature]
    if config.variant == 'exact':
      hessian = 2 * config.loss_scale * rows.T @ rows / len(labels)
      step = (np.eye(len(w)) - alpha * hessian) @ v
    elif config.variant == 'hessian_free':
      delta = config.finite_difference_step
      ahead = _gradient(rows, labels, w + delta * v, config)
      behind = _gradient(rows, labels, w - delta * v, config)
      step = v - alpha * (ahead - behind) / (2 * delta)
    else:
      step = v
    w = w - config.client_learning_rate * step
  return w, squares


def _adapt(x, y, w, config):
  """Steps on all training examples; the squared errors that they met."""
  squares = []
  for _ in range(config.num_personal_steps):
    squares.extend((x @ w - y) ** 2)
    w = w - config.inner_learning_rate * _gradient(x, y, w, config)
  return w, np.array(squares)
