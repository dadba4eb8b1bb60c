"""FedSoft's synthetic experiment over sigma_0, tau and K, in small.

Ruan and Joe-Wong (2021), Table 6, Appendix B and what its sampling implies.
Mixtures of two linear regressions on 20 clients; SGD, whose steps scale with
the regression vectors. Everything but the swept value is the same in a sweep,
seeds included, and another seed changes what comes out by a few per cent.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import pytest

from tests.testing import toys
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.numerics import optimizers
from tff_algos.runtimes.vectorized import vectorized_runtime
from tff_algos.stages.client import local_training

pytestmark = pytest.mark.verify

_NUM_CLIENTS = 20
_SIZES = list(np.random.default_rng(1).integers(60, 100, _NUM_CLIENTS))
_TEN_NINETY = np.repeat([[0.1, 0.9], [0.9, 0.1]], _NUM_CLIENTS // 2, axis=0)
_CONFIG = fed_soft.FedSoftConfig(
  cohort_size_per_cluster=12,
  proximal_weight=1.0,
  loss_scale=0.5,
  local_training=local_training.LocalTrainingConfig(
    5, 10, optimizers.OptimizerConfig('sgd', 0.1)
  ),
)


class Outcome(NamedTuple):
  """What a run ends with, clusters in the order of the sources.

  Attributes:
    own: Mean over sources of the test error of their centre.
    importance: u^t after each round, `[num_rounds, N, 2]`.
  """

  own: float
  importance: np.ndarray


@pytest.fixture(scope='module', name='run')
def _run():
  algorithm = fed_soft.build_fed_soft(toys.linear(10), _CONFIG)
  with vectorized_runtime.VectorizedRuntime(algorithm, _NUM_CLIENTS) as runtime:
    yield functools.partial(_outcome, algorithm, runtime)


def _outcome(
  traced,
  runtime,
  squared_gap=165.0,
  mixture=_TEN_NINETY,
  num_rounds=20,
  **plan,
):
  """Runs FedSoft; `plan` changes options of the round plan alone."""
  thetas = np.random.default_rng(0).normal(size=(2, 10))
  thetas *= np.sqrt(squared_gap) / np.linalg.norm(thetas[0] - thetas[1])
  source = toys.linear_clients(thetas, mixture, _SIZES)
  planned = fed_soft.build_fed_soft(
    toys.linear(10), dataclasses.replace(_CONFIG, **plan)
  )
  algorithm = dataclasses.replace(planned, phases=traced.phases)
  start, importance = None, []
  for round_num in range(1, num_rounds + 1):
    server_state, states, _ = toys.run_rounds(
      algorithm, source, 1, start=start, first_round=round_num, runtime=runtime
    )
    start = server_state, states
    importance.append(server_state.importance_weights)
  centers = server_state.cluster_models['kernel'][..., 0]
  # A linear model's test error is exactly |c - theta|^2 + 1.
  errors = ((centers[:, np.newaxis] - thetas) ** 2).sum(axis=-1) + 1
  order = min(([0, 1], [1, 0]), key=lambda order: errors[order, [0, 1]].sum())
  return Outcome(errors[order, [0, 1]].mean(), np.array(importance)[..., order])


def test_errors_grow_with_the_distance_of_the_sources(run):
  """Table 6: about in proportion to |theta_0 - theta_1|^2, random mixtures."""
  shares = np.random.default_rng(2).uniform(size=_NUM_CLIENTS)
  mixture = np.stack([shares, 1 - shares], axis=1)
  gaps = np.array([13.6, 165, 664, 2425])
  own = np.array([run(gap, mixture).own for gap in gaps])
  assert (np.diff(own) > 0).all()
  relative = (own - 1) / gaps
  np.testing.assert_allclose(relative, relative.mean(), rtol=0.2)


def test_rare_estimation_is_late_but_not_worse(run):
  """Appendix B: tau changes how soon u^t is good, not where training ends.

  Everybody takes part, so that no draw differs.
  """
  outcomes = [
    run(selection='weighted_full', num_rounds=40, estimation_interval=tau)
    for tau in (1, 2, 5, 10)
  ]
  own = [outcome.own for outcome in outcomes]
  early = [
    np.abs(outcome.importance[:10] - outcomes[0].importance[-1]).mean()
    for outcome in outcomes
  ]
  np.testing.assert_allclose(own, own[0], rtol=0.06)
  assert (np.diff(early) > 0.01).all()


def test_small_cohorts_keep_the_centers_apart(run):
  """Plain means of larger cohorts flatten the chances; K = N is weighted."""
  own = [run(cohort_size_per_cluster=k).own for k in (6, 12, 19, 20)]
  assert own[0] < own[1] < own[2]
  assert own[3] < own[1]
