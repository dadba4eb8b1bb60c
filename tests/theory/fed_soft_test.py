"""Theory of FedSoft on the real phases: closed forms, limits, reductions.

Ruan and Joe-Wong (2021). The toy is F_s(w) = 1/2 |w - theta_s|^2 of
`tests.testing.points`: with exact local solutions, everything has a closed
form. Computations are float32, so closed forms hold to a relative 1e-5 unless
a test says otherwise.
"""

import numpy as np
import pytest

from tests.testing import points, toys
from tff_algos.algorithms.fed_soft import fed_soft

_THETAS = np.array([[1.0, 0.5], [-1, 1.5], [0, -2]])


def _build(proximal_weight, num_clusters=2):
  """FedSoft on points: exact local solutions, everybody takes part."""
  config = fed_soft.FedSoftConfig(
    num_clusters=num_clusters,
    estimation_interval=1,
    importance_smoother=0.0,
    proximal_weight=proximal_weight,
    selection='weighted_full',
    loss_scale=0.5,
    local_training=points.exact_solver(proximal_weight, batch_size=256),
  )
  return fed_soft.build_fed_soft(points.model(_THETAS.shape[1]), config)


def _start(algorithm, source, centers):
  """Round 0 with these centres."""
  server_state, states = toys.initial_states(algorithm, source.population)
  models = {'point': np.asarray(centers, np.float32)}
  return server_state._replace(cluster_models=models), states


def _trajectory(algorithm, source, start, num_rounds):
  """Returns the centres after 0, 1, ... rounds, `[rounds + 1, S, d]`."""
  centers = [start[0].cluster_models['point']]
  for round_num in range(1, num_rounds + 1):
    server_state, states, _ = toys.run_rounds(
      algorithm, source, 1, start=start, first_round=round_num
    )
    start = (server_state, states)
    centers.append(server_state.cluster_models['point'])
  return np.array(centers), start


def _mixing_matrix(counts):
  """M = V U of exact importances, `[S, S]`, rows sum to 1."""
  shares = counts / counts.sum(axis=1, keepdims=True)
  return (counts / counts.sum(axis=0)).T @ shares


def test_hard_clusters_shrink_their_error_by_a_fixed_factor():
  """One-hot importance: c_s - theta_s shrinks by lambda / (1 + lambda)."""
  weight, thetas = 0.7, _THETAS
  source = points.mixtures(thetas, np.eye(3, dtype=int)[[0, 1, 2, 0, 1]] * 4)
  algorithm = _build(weight, num_clusters=3)
  first = thetas + [[0.3, 0.1], [-0.2, 0.4], [0.1, 0.2]]
  centers, _ = _trajectory(
    algorithm, source, _start(algorithm, source, first), 6
  )
  factors = (weight / (1 + weight)) ** np.arange(7)
  expected = factors[:, np.newaxis, np.newaxis] * (first - thetas)
  np.testing.assert_allclose(centers - thetas, expected, atol=1e-6)


_TEN_NINETY = np.array([[1, 9], [9, 1]])
_THIRTY_SEVENTY = np.array([[3, 7], [7, 3]])


@pytest.mark.parametrize(
  ('counts', 'weight', 'separation'),
  [
    (_TEN_NINETY, 0.1, 0.6178),
    (_TEN_NINETY, 1.0, 0.4706),
    (_TEN_NINETY, 10.0, 0.1391),
    (_THIRTY_SEVENTY, 0.1, 0.1476),
    (_THIRTY_SEVENTY, 1.0, 0.0870),
  ],
)
def test_soft_clusters_are_drawn_together_even_with_perfect_importance(
  counts, weight, separation
):
  """Fixed point: c = ((1 + lambda) I - lambda M)^-1 M theta.

  The separation of two symmetric clusters is m / (1 + lambda (1 - m)), m being
  the second eigenvalue of M: 0.64 for 10:90 and 0.16 for 30:70.
  """
  thetas = _THETAS[:2]
  source = points.mixtures(thetas, counts)
  algorithm = _build(weight)
  first = thetas.mean(axis=0) + [[0.6, -0.3], [-0.6, 0.3]]
  start = _start(algorithm, source, first)
  mixing = _mixing_matrix(counts)
  # Only this eigenvalue is excited: the first centres have the right mean.
  second = np.sort(np.linalg.eigvals(mixing).real)[0]
  rate = second * weight / (1 + weight)
  num_rounds = int(np.ceil(np.log(1e-5) / np.log(rate)))
  centers, (server_state, _) = _trajectory(algorithm, source, start, num_rounds)
  np.testing.assert_allclose(
    server_state.importance_weights, counts / 10, rtol=1e-6
  )
  for before, after in zip(centers[:-1], centers[1:], strict=True):
    expected = mixing @ (thetas + weight * before) / (1 + weight)
    np.testing.assert_allclose(after, expected, atol=1e-5)
  limit = np.linalg.solve(
    (1 + weight) * np.eye(2) - weight * mixing, mixing @ thetas
  )
  gap, widest = centers[-1][0] - centers[-1][1], thetas[0] - thetas[1]
  np.testing.assert_allclose(gap, limit[0] - limit[1], atol=1e-4)
  assert abs(gap @ widest / (widest @ widest) - separation) < 1e-4
  distances = np.linalg.norm(centers[:3] - limit, axis=(1, 2))
  np.testing.assert_allclose(distances[1:] / distances[:-1], rate, rtol=2e-2)
  assert abs(second / (1 + weight * (1 - second)) - separation) < 5e-5


@pytest.mark.verify
def test_separation_of_the_linear_partition_of_a_hundred_clients():
  """Client k holds (k + 0.5)% of one source: m = 0.3333, 0.2000 at lambda 1."""
  own = 2 * np.arange(100) + 1
  counts = np.stack([own, 200 - own], axis=1)
  thetas = _THETAS[:2]
  source = points.mixtures(thetas, counts)
  algorithm = _build(1.0)
  start = _start(algorithm, source, 0.6 * thetas + 0.4 * thetas[::-1])
  with toys.graph_runtime(algorithm, 100) as runtime:
    server_state, _, _ = toys.run_rounds(
      algorithm, source, 8, start=start, runtime=runtime
    )
  centers = server_state.cluster_models['point']
  ratio = (centers[0] - centers[1]) / (thetas[0] - thetas[1])
  np.testing.assert_allclose(ratio, 0.2, atol=1e-4)
