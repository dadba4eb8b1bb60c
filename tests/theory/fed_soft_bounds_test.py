"""Theorems 2 and 3 of FedSoft for the models that its train phase finds.

Ruan and Joe-Wong (2021). Sources are random quadratic risks with eigenvalues in
[0.5, 2]; a client holds whole blocks of them, so that its risk is exactly
sum_s u_ks F_s, and solves Eq. 4 by gradient descent in float32.
"""

import numpy as np
import pytest

from tests.testing import toys
from tff_algos.algorithms.fed_soft import bounds, fed_soft, quadratic_risks
from tff_algos.data import schema
from tff_algos.numerics import optimizers, quadratics
from tff_algos.stages.client import local_training

_WEIGHT = 1.0
_COUNTS = {
  2: np.array([[9, 1], [5, 5], [2, 8], [10, 0]]),
  3: np.array([[6, 3, 1], [1, 1, 8], [3, 4, 3], [0, 5, 5]]),
}


def _block(generator, theta):
  """Four examples whose mean half squared error has a random Hessian."""
  basis, _ = np.linalg.qr(generator.normal(size=(4, 4)))
  x = 2 * np.sqrt(generator.uniform(0.5, 2, 4))[:, None] * basis.T
  return x, x @ theta


def _one_round(num_sources, closeness):
  """One round from centres that lie `closeness` of Assumption 4's radius off.

  Returns the risks and the local solves.
  """
  generator = np.random.default_rng(num_sources)
  thetas = 2 * generator.normal(size=(num_sources, 4))
  blocks = [_block(generator, theta) for theta in thetas]
  terms = quadratics.least_squares(blocks, 0.5)
  risks = quadratic_risks.QuadraticRisks(terms.matrices, terms.minimizers)
  offsets = generator.normal(size=thetas.shape)
  offsets /= np.linalg.norm(offsets, axis=1, keepdims=True)
  radius = np.sqrt(risks.strong_convexity / risks.smoothness) * risks.gaps[0]
  counts = _COUNTS[num_sources]
  importance = generator.dirichlet(np.ones(num_sources), len(counts))
  importance *= counts > 0
  importance /= importance.sum(axis=1, keepdims=True)
  algorithm = _build(importance)
  source = toys.ToySource([_examples(blocks, row) for row in counts])
  server_state, states = toys.initial_states(algorithm, source.population)
  centers = (thetas + closeness * 0.5 * radius * offsets).astype(np.float32)
  models = {'kernel': centers[..., np.newaxis]}
  _, states, _ = toys.run_rounds(
    algorithm,
    source,
    1,
    start=(server_state._replace(cluster_models=models), states),
  )
  return risks, bounds.LocalSolves(
    local_models=np.stack(
      [state.personalized_weights['kernel'][:, 0] for state in states]
    ).astype(np.float64),
    centers=centers.astype(np.float64),
    mixture=counts / 10,
    importance=importance,
    proximal_weight=_WEIGHT,
  )


def _examples(blocks, counts):
  """The examples of one client: block s, counts[s] times."""
  rows = np.repeat(np.arange(len(counts)), counts)
  x, y = (
    np.concatenate([blocks[s][part] for s in rows]).astype(np.float32)
    for part in (0, 1)
  )
  return schema.Examples(x, y, np.repeat(rows, 4).astype(np.int32))


def _build(importance):
  return fed_soft.build_fed_soft(
    toys.linear(4),
    fed_soft.FedSoftConfig(
      num_clusters=importance.shape[1],
      selection='weighted_full',
      fixed_importance=tuple(map(tuple, importance.tolist())),
      proximal_weight=_WEIGHT,
      loss_scale=0.5,
      local_training=local_training.LocalTrainingConfig(
        12, 64, optimizers.OptimizerConfig('sgd', 1 / (1.25 + _WEIGHT))
      ),
    ),
  )


@pytest.mark.parametrize('num_sources', [2, 3])
@pytest.mark.parametrize('closeness', [0.5, 0.9])
def test_local_models_keep_both_bounds(num_sources, closeness):
  risks, solves = _one_round(num_sources, closeness)
  found = bounds.measure(risks, solves)
  assert abs(found.alpha_0 - (1 - closeness) / 2) < 1e-5
  assert found.gamma_0 < 1e-3, 'the solver solves'
  assert 0.02 < np.nanmax(found.gradient_ratios) <= 1
  assert (found.safe_distance_ratios <= 1).all()
