"""What FedSoft becomes in special cases: FedProx, local training, one model.

Ruan and Joe-Wong (2021). Where NumPy is compared, float32 allows 1e-4.
"""

import numpy as np
import pytest

from tests.testing import points, toys
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

_SIZES = (6, 9, 5, 8)
_THETAS = np.array([[5.0, 0], [-5, 0]])
_CLUSTERS = np.array([0, 1, 1, 0])
_RATE = 0.05
_NUM_EPOCHS = 4
_FULL_BATCH = local_training.LocalTrainingConfig(
  _NUM_EPOCHS, 32, optimizers.OptimizerConfig('sgd', _RATE)
)
_SOURCE = toys.linear_clients(_THETAS, np.eye(2)[_CLUSTERS], _SIZES)


def _build(**options):
  """FedSoft in which everybody takes part and trains with full batches."""
  config = fed_soft.FedSoftConfig(
    selection='weighted_full',
    loss_scale=0.5,
    local_training=_FULL_BATCH,
    **options,
  )
  return fed_soft.build_fed_soft(toys.linear(2), config)


def _fed_prox(near, weight):
  """One round of FedProx's local solver from the models `near`, in NumPy.

  Each client minimises 1/2 mean (x w - y)^2 + weight / 2 |w - near|^2.
  """
  models = near.copy()
  for k, w in enumerate(models):
    examples = _SOURCE.examples(k)
    x, y = examples.x.astype(np.float64), examples.y.astype(np.float64)
    for _ in range(_NUM_EPOCHS):
      gradient = x.T @ (x @ w - y) / len(y) + weight * (w - near[k])
      w = w - _RATE * gradient
    models[k] = w
  return models


@pytest.mark.parametrize('num_clusters', [1, 2])
def test_one_cluster_or_hard_clusters_are_fed_prox_per_cluster(num_clusters):
  """Importance is one-hot, and stays: no estimation falls into rounds 2-6."""
  clusters = np.minimum(_CLUSTERS, num_clusters - 1)
  importance = np.eye(num_clusters, dtype=np.float32)[clusters]
  algorithm = _build(
    num_clusters=num_clusters,
    estimation_interval=1000,
    proximal_weight=0.6,
    start='mixed_center',
  )
  centers = _THETAS[:num_clusters] * 0.5
  server_state = fed_soft.ServerState(
    {'kernel': centers[..., np.newaxis].astype(np.float32)}, importance
  )
  _, states = toys.initial_states(algorithm, _SOURCE.population)
  server_state, _, _ = toys.run_rounds(
    algorithm, _SOURCE, 5, start=(server_state, states), first_round=2
  )
  weights = importance * np.array(_SIZES)[:, np.newaxis]
  for _ in range(5):
    models = _fed_prox(centers[clusters], 0.6)
    centers = (weights / weights.sum(axis=0)).T @ models
  np.testing.assert_allclose(
    server_state.cluster_models['kernel'][..., 0], centers, rtol=1e-4
  )


def test_one_cluster_estimates_importance_one_for_everybody():
  algorithm = _build(num_clusters=1)
  server_state, _, _ = toys.run_rounds(algorithm, _SOURCE, 1)
  np.testing.assert_array_equal(
    server_state.importance_weights, np.ones([4, 1])
  )


def test_without_proximal_term_clients_know_nothing_of_each_other():
  """Own start, lambda 0: no bit of w_k depends on centres or on others."""
  algorithm = _build(proximal_weight=0.0)
  _, states, _ = toys.run_rounds(algorithm, _SOURCE, 3)
  server_state, start = toys.initial_states(algorithm, _SOURCE.population)
  moved = server_state._replace(
    cluster_models={'kernel': 5 + server_state.cluster_models['kernel']}
  )
  others = toys.linear_clients(-_THETAS, np.full((4, 2), 0.5), _SIZES, seed=9)
  mine = _SOURCE.examples(3)
  others.examples(3).x[:], others.examples(3).y[:] = mine.x, mine.y
  _, other_states, _ = toys.run_rounds(
    algorithm, others, 3, start=(moved, start)
  )
  models, other_models = (
    [state.personalized_weights['kernel'] for state in all_states]
    for all_states in (states, other_states)
  )
  np.testing.assert_array_equal(other_models[3], models[3])
  assert (other_models[2] != models[2]).all()


def test_if_one_center_fits_all_examples_full_participation_merges_them():
  """A weakness of the algorithm itself, written down so that it surprises
  nobody: the other cluster then draws by examples, and so does the first.
  """
  source = points.mixtures(np.array([[1.0, 0], [2, 0]]), np.array([[3, 3]] * 2))
  algorithm = fed_soft.build_fed_soft(
    points.model(2), fed_soft.FedSoftConfig(selection='weighted_full')
  )
  server_state, states = toys.initial_states(algorithm, source.population)
  start = server_state._replace(
    cluster_models={'point': np.array([[1.5, 0], [-9, 0]], np.float32)}
  )
  server_state, _, _ = toys.run_rounds(
    algorithm, source, 2, start=(start, states)
  )
  centers = server_state.cluster_models['point']
  np.testing.assert_allclose(centers[0], centers[1], rtol=1e-6)
