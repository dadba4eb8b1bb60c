"""IFCA on linear regression, written from the paper in NumPy float64.

Ghosh et al., "An Efficient Framework for Clustered Federated Learning" (2020),
Algorithm 1, both options. It shares with the library only `core.seeds` (so
that both draw alike) and, written a second time, the hash that shuffles
examples. Models are plain vectors; gradients are written out by hand.
"""

from typing import NamedTuple

import numpy as np

from tests.testing import cohorts, index_hash
from tff_algos.core import seeds


class Round(NamedTuple):
  """What one round left behind.

  Attributes:
    centers: `[k, P]`.
    choices: Cluster of each client, `[N]`; -1 if it was never drawn.
    loss: Mean squared error of the examples as the clients met them.
    margin: Smallest distance between the two lowest losses of a client: how
      far a choice is from flipping.
  """

  centers: np.ndarray
  choices: np.ndarray
  loss: float
  margin: float


def run(clients, client_ids, centers, config, num_rounds, seed):
  """Returns a list of `Round`s.

  Args:
    clients: A list of (x `[n, P]`, y `[n]`); n may be 0.
    client_ids: Their names, for the seeds.
    centers: Of round 0, `[k, P]`.
    config: The library's `IfcaConfig`.
    num_rounds: T.
    seed: The run's seed.
  """
  centers = np.array(centers, np.float64)
  available = np.flatnonzero([len(y) for _, y in clients])
  choices = np.full(len(clients), -1)
  rounds = []
  for t in range(1, num_rounds + 1):
    drawn = cohorts.drawn(seed, t, available, config.cohort_size)
    uploads, weights, seen, margins = [], [], [], [np.inf]
    for k in drawn:
      x, y = clients[k]
      losses = ((x @ centers.T - y[:, np.newaxis]) ** 2).mean(axis=0)
      choices[k] = losses.argmin()
      margins.extend(np.diff(np.sort(losses))[:1])
      client_seed = seeds.derive_seed(seed, 'train', t, client_ids[k])
      upload, squares = _learn(x, y, centers[choices[k]], config, client_seed)
      uploads.append(upload)
      weights.append(len(y) if config.weighting == 'examples' else 1)
      seen.extend(squares)
    centers = _average(
      centers, choices[drawn], np.array(uploads), np.array(weights), config
    )
    rounds.append(
      Round(centers.copy(), choices.copy(), np.mean(seen), min(margins))
    )
  return rounds


def _learn(x, y, center, config, seed):
  """Lines 8-11: what is uploaded, and the squared errors that were met."""
  scale = 2 * config.loss_scale
  if config.averaging == 'gradients':
    errors = x @ center - y
    return scale * x.T @ errors / len(y), errors**2
  w, squares = center.copy(), []
  training = config.local_training
  for rows in index_hash.batches(
    seed, training.num_local_epochs, len(y), training.batch_size
  ):
    errors = x[rows] @ w - y[rows]
    squares.extend(errors**2)
    rate = training.optimizer.learning_rate
    w = w - rate * scale * x[rows].T @ errors / len(rows)
  return w, squares


def _average(centers, choices, uploads, weights, config):
  """Lines 12-15."""
  new = centers.copy()
  for j in range(len(centers)):
    chose = choices == j
    if not chose.any():
      continue
    if config.averaging == 'gradients':
      step = weights[chose] @ uploads[chose] / weights.sum()
    else:
      step = centers[j] - np.average(
        uploads[chose], axis=0, weights=weights[chose]
      )
    new[j] = centers[j] - config.server_learning_rate * step
  return new
