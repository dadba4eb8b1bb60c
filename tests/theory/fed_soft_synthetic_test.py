"""FedSoft on a small version of the paper's synthetic experiment.

Mixtures of two linear regressions, 10:90, with the paper's distance between
their vectors; fewer clients, examples and rounds, and a larger learning rate.
"""

import numpy as np
import pytest

from tests.testing import client_data, toys
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training
from tff_algos.stages.clusters import assignment

_NUM_CLIENTS = 20
# The squared distance that the paper's Table 1 implies.
_GAP = np.sqrt(165)
_MODEL = toys.linear(10)


@pytest.fixture(scope='module', name='trained')
def _trained():
  """Returns what `_train` does on 10:90."""
  return _train(np.repeat([[0.1, 0.9], [0.9, 0.1]], _NUM_CLIENTS // 2, axis=0))


def _train(mixtures):
  """Returns (thetas, source, server state, client states) after training."""
  thetas = np.random.default_rng(0).normal(size=(2, 10))
  thetas *= _GAP / np.linalg.norm(thetas[0] - thetas[1])
  sizes = np.random.default_rng(1).integers(60, 100, _NUM_CLIENTS)
  source = toys.linear_clients(thetas, mixtures, list(sizes))
  algorithm = fed_soft.build_fed_soft(
    _MODEL,
    fed_soft.FedSoftConfig(
      cohort_size_per_cluster=12,
      proximal_weight=1.0,
      loss_scale=0.5,
      local_training=local_training.LocalTrainingConfig(
        5, 10, optimizers.OptimizerConfig('adam', 0.03)
      ),
    ),
  )
  with toys.graph_runtime(algorithm, _NUM_CLIENTS) as runtime:
    server_state, states, outputs = toys.run_rounds(
      algorithm, source, 20, runtime=runtime
    )
  assert all(output.num_invalid == 0 for output in outputs)
  return thetas, source, server_state, states


def _cluster_losses(server_state, examples):
  """Mean squared error of each centre on some examples, `[2]`."""
  data = client_data.build(examples.x, examples.y)
  losses = assignment.cluster_losses(_MODEL, server_state.cluster_models, data)
  return losses.numpy().mean(axis=1)


def test_each_center_is_the_best_on_one_source(trained):
  thetas, _, server_state, _ = trained
  centers = server_state.cluster_models['kernel'][..., 0]
  # A linear model's test error is exactly |c - theta|^2 + 1.
  errors = ((centers[:, np.newaxis] - thetas) ** 2).sum(axis=-1) + 1
  best = errors.argmin(axis=0)
  assert sorted(best) == [0, 1]
  assert errors[best, [0, 1]].mean() < 0.6 * errors[1 - best, [0, 1]].mean()


_SHARES = np.linspace(0, 1, _NUM_CLIENTS)


@pytest.mark.verify
@pytest.mark.parametrize(
  'mixtures',
  [None, np.stack([_SHARES, 1 - _SHARES], 1)],
  ids=['10:90', 'linear'],
)
def test_a_clients_own_model_beats_every_center_on_its_data(trained, mixtures):
  outcome = trained if mixtures is None else _train(mixtures)
  _, source, server_state, states = outcome
  for k, state in enumerate(states):
    assert state.num_updates > 0
    examples = source.examples(k)
    residual = (
      examples.x @ state.personalized_weights['kernel'][:, 0] - examples.y
    )
    own = np.mean(residual**2)
    assert own < _cluster_losses(server_state, examples).min()


def test_new_users_of_one_source_find_their_center_by_the_lowest_loss(trained):
  """200 new users with 20 examples each: over 95% must choose rightly."""
  thetas, _, server_state, _ = trained
  centers = server_state.cluster_models['kernel'][..., 0]
  distances = np.linalg.norm(centers[:, np.newaxis] - thetas, axis=-1)
  kinds = np.arange(200) % 2
  users = toys.linear_clients(thetas, np.eye(2)[kinds], [20] * 200, seed=1)
  chosen = [
    _cluster_losses(server_state, users.examples(i)).argmin()
    for i in range(200)
  ]
  assert np.mean(chosen == distances.argmin(axis=0)[kinds]) > 0.95


def test_importance_reaches_the_plateau_of_misassignment(trained):
  """0.9 (1 - p) + 0.1 p with p = arctan(2 / D) / pi, within 0.02.

  The mean over both groups is one over 1,571 examples; its standard error is
  0.0088, so a right program would fail with one seed in 42.
  """
  _, _, server_state, _ = trained
  importance = server_state.importance_weights
  groups = importance.reshape(2, _NUM_CLIENTS // 2, 2).mean(axis=1)
  p = np.arctan(2 / _GAP) / np.pi
  plateau = 0.9 * (1 - p) + 0.1 * p
  own = groups.max(axis=1)
  assert groups.argmax(axis=1).tolist() in ([0, 1], [1, 0])
  np.testing.assert_allclose(own.mean(), plateau, atol=0.02)
  # Two bands (Figure 2): each client within four deviations of its share; all
  # are, but with one seed in 1,000.
  deviation = np.sqrt(plateau * (1 - plateau) / 60)
  assert (np.abs(importance.max(axis=1) - plateau) < 4 * deviation).all()
