"""FedSoft on linear regression, written from the paper in NumPy float64.

Ruan and Joe-Wong, "FedSoft: Soft Clustered Federated Learning with Proximal
Local Updating" (2021), Algorithm 1 and Eqs. 4-6 and 27. It shares with the
library only `core.seeds` (so that both draw alike) and, written a second time,
the hash that shuffles examples. Models are plain vectors; gradients are
written out by hand.
"""

from typing import NamedTuple

import numpy as np

from tests.testing import index_hash
from tff_algos.core import seeds


class Round(NamedTuple):
  """What one round left behind.

  Attributes:
    importance: u, `[N, S]`.
    multiplicity: What each client weighs in each mean, `[N, S]`.
    centers: c, `[S, P]`.
    local_models: w, `[N, P]`.
    loss: Mean squared error of the examples as the solvers met them.
    margin: Smallest distance between the two lowest losses of an example at
      the last estimation: how far an assignment is from flipping.
  """

  importance: np.ndarray
  multiplicity: np.ndarray
  centers: np.ndarray
  local_models: np.ndarray
  loss: float
  margin: float


def run(clients, client_ids, centers, local_models, config, num_rounds, seed):
  """Returns a list of `Round`s.

  Args:
    clients: A list of (x `[n, P]`, y `[n]`); n may be 0.
    client_ids: Their names, for the seeds.
    centers: c of round 0, `[S, P]`.
    local_models: w of round 0, `[N, P]`.
    config: The library's `FedSoftConfig`.
    num_rounds: T.
    seed: The run's seed.
  """
  centers = np.array(centers, np.float64)
  local_models = np.array(local_models, np.float64)
  sizes = np.array([len(y) for _, y in clients], np.float64)
  shape = (len(clients), config.num_clusters)
  importance = np.full(shape, float(config.importance_smoother))
  margin, rounds = np.inf, []
  for t in range(num_rounds):
    if t % config.estimation_interval == 0:
      margin = np.inf
      for k, (x, y) in enumerate(clients):
        if len(y):
          importance[k], client_margin = _estimate(
            x, y, centers, config.importance_smoother
          )
          margin = min(margin, client_margin)
    multiplicity = _draw(importance, sizes, config, t + 1, seed)
    total, count = 0.0, 0
    for k in np.flatnonzero(multiplicity.sum(axis=1)):
      client_seed = seeds.derive_seed(seed, 'train', t + 1, client_ids[k])
      local_models[k], losses = _solve(
        *clients[k], local_models[k], importance[k], centers, config,
        client_seed,
      )  # fmt: skip
      total, count = total + sum(losses), count + len(losses)
    centers = (multiplicity / multiplicity.sum(axis=0)).T @ local_models
    rounds.append(
      Round(
        importance.copy(),
        multiplicity,
        centers.copy(),
        local_models.copy(),
        total / count,
        margin,
      )
    )
  return rounds


def _estimate(x, y, centers, sigma):
  """Lines 3-14: count which centre fits each example best."""
  losses = (x @ centers.T - y[:, np.newaxis]) ** 2
  counts = np.bincount(losses.argmin(axis=1), minlength=len(centers))
  ranked = np.sort(losses, axis=1)
  margin = (ranked[:, 1] - ranked[:, 0]).min() if len(centers) > 1 else np.inf
  return np.maximum(counts / len(y), sigma), margin


def _draw(importance, sizes, config, round_num, seed):
  """Lines 15-16: what each client weighs in each cluster's mean."""
  probs = (importance * sizes[:, np.newaxis]).T
  for row in probs:
    if not row.sum():
      row[:] = sizes
  probs /= probs.sum(axis=1, keepdims=True)
  everyone = np.count_nonzero(sizes) == config.cohort_size_per_cluster
  if config.selection == 'weighted_full' or (
    config.selection == 'without_replacement' and everyone
  ):
    return probs.T
  generator = seeds.numpy_generator(seed, 'cohort', round_num)
  columns = []
  for row in probs:
    ids = generator.choice(
      len(row),
      config.cohort_size_per_cluster,
      config.selection == 'with_replacement',
      row,
    )
    columns.append(np.bincount(ids, minlength=len(row)))
  return np.stack(columns, axis=1).astype(np.float64)


def _solve(x, y, own, u, centers, config, seed):
  """Line 17: mini-batch steps on Eq. 4, with a fresh solver state."""
  w = {
    'own': own,
    'mixed_center': u @ centers / u.sum(),
    'best_center': centers[u.argmax()],
  }[config.start].copy()
  velocity = first = second = np.zeros_like(w)
  num_steps, losses = 0, []
  training = config.local_training
  optimizer = training.optimizer
  for rows in index_hash.batches(
    seed, training.num_local_epochs, len(y), training.batch_size
  ):
    errors = x[rows] @ w - y[rows]
    losses.extend(errors**2)
    gradient = config.loss_scale * 2 * x[rows].T @ errors / len(rows)
    gradient += config.proximal_weight * (u.sum() * w - u @ centers)
    num_steps += 1
    if optimizer.name == 'adam':
      first = 0.9 * first + 0.1 * gradient
      second = 0.999 * second + 0.001 * gradient**2
      mean = first / (1 - 0.9**num_steps)
      root = np.sqrt(second / (1 - 0.999**num_steps))
      w = w - optimizer.learning_rate * mean / (root + 1e-8)
    else:
      velocity = optimizer.momentum * velocity + gradient
      w = w - optimizer.learning_rate * velocity
  return w, losses
