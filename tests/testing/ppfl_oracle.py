"""PPFL on linear regression, written from the paper in NumPy float64.

Di et al., arXiv:2310.14337, Algorithms 1, 2 and 3, with matrices W and D - W that
are built whole. It shares with the library only `core.seeds` (so that both draw
alike) and, written a second time, the hash that shuffles examples. All canonical
models are plain vectors, their gradients written out by hand.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from tests.testing import cohorts, index_hash
from tff_algos.core import seeds


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of the algorithm, its schedule of rates and its floor."""

  schedule: str = 'alternating'
  cohort_size: int = 0
  weighting: str = 'examples'
  is_weighed: bool = True
  membership_rate: float = 2.0
  membership_steps: int = 1
  laplacian_weight: float = 0.0
  form: str = 'laplacian'
  shared_prob: float = 0.5
  loss_scale: float = 0.5
  epochs: int = 2
  batch_size: int = 4
  learning_rate: float = 0.05
  floor: float = 1e-6
  decay_after: int = 10**9


class Round(NamedTuple):
  """What one round left behind.

  Attributes:
    theta: `[K, P]`.
    memberships: `[N, K]`.
  """

  theta: np.ndarray
  memberships: np.ndarray


def run(clients, client_ids, theta, affinity, options, num_rounds, seed):
  """Returns a list of `Round`s.

  Args:
    clients: A list of (x `[n, P]`, y `[n]`); n may be 0.
    client_ids: Their names, for the seeds.
    theta: Of round 0, `[K, P]`.
    affinity: W, `[N, N]`.
    options: `Options`.
    num_rounds: T.
    seed: The run's seed.
  """
  sizes = np.array([len(y) for _, y in clients], float)
  p = sizes if options.weighting == 'examples' else np.minimum(sizes, 1)
  p = p / p.sum()
  theta = np.array(theta, np.float64)
  c = np.full((len(clients), len(theta)), 1 / len(theta))
  rounds = []
  for t in range(1, num_rounds + 1):
    scale = 0.1 if t > options.decay_after else 1.0
    drawn = moved = np.flatnonzero(sizes)
    if options.laplacian_weight and not options.cohort_size:
      moved = np.arange(len(clients))  # W is all ones: nobody stands apart.
    if options.cohort_size:
      drawn = moved = cohorts.drawn(seed, t, drawn, options.cohort_size)
    block = 'joint' if options.schedule == 'alternating' else 'both'
    if options.schedule == 'random_block':
      draw = seeds.numpy_generator(seed, 'block', t).random()
      block = 'shared' if draw < options.shared_prob else 'membership'
    steps = {
      'joint': ('membership', 'shared'),
      'both': ('shared', 'membership'),
    }.get(block, (block,))
    phase = 'joint' if block == 'joint' else 'shared'
    for step in steps:
      if step == 'membership':
        c = _move_memberships(
          clients, moved, theta, c, p, affinity, options, scale
        )
      else:
        locals_ = [
          _train(
            *clients[i],
            theta,
            c[i],
            options,
            scale,
            seeds.derive_seed(seed, phase, t, client_ids[i]),
          )
          for i in drawn
        ]
        theta = np.average(locals_, axis=0, weights=p[drawn])
    rounds.append(Round(theta, c.copy()))
  return rounds


def objective(clients, theta, c, p, affinity, laplacian_weight):
  """F: the weighted losses and lambda / 2 sum_ij w_ij |c_i - c_j|^2."""
  losses = [
    0.5 * np.mean((x @ (one @ theta) - y) ** 2) if len(y) else 0.0
    for (x, y), one in zip(clients, c, strict=True)
  ]
  pairs = np.sum((c[:, np.newaxis] - c) ** 2, axis=-1)
  return p @ losses + laplacian_weight / 2 * np.sum(affinity * pairs)


def gradients(x, y, theta, c, loss_scale=0.5):
  """Of the mean loss, in theta `[K, P]` and in c `[K]`."""
  slope = 2 * loss_scale * x.T @ (x @ (c @ theta) - y) / max(len(y), 1)
  return np.outer(c, slope), theta @ slope


def mirror_step(c, gradient, rate, floor):
  """Exponentiated gradient, raised to the floor, in plain powers."""
  stepped = c * np.exp(-rate * (gradient - gradient.min()))
  kept = np.maximum(stepped / stepped.sum(), floor)
  return kept / kept.sum()


def _move_memberships(clients, drawn, theta, c, p, affinity, options, scale):
  degrees = np.diag(affinity.sum(axis=1))
  pull = 2 * options.laplacian_weight * (degrees - affinity) @ c
  if options.form == 'degree':
    pull = options.laplacian_weight * degrees @ c
  new = c.copy()
  for i in drawn:
    for _ in range(options.membership_steps):
      slope = gradients(*clients[i], theta, new[i], options.loss_scale)[1]
      weight = p[i] if options.is_weighed else 1.0
      new[i] = mirror_step(
        new[i],
        weight * slope + pull[i],
        options.membership_rate * scale,
        options.floor,
      )
  return new


def _train(x, y, theta, c, options, scale, seed):
  theta = theta.copy()
  for rows in index_hash.batches(
    seed, options.epochs, len(y), options.batch_size
  ):
    slope = gradients(x[rows], y[rows], theta, c, options.loss_scale)[0]
    theta = theta - options.learning_rate * scale * slope
  return theta
