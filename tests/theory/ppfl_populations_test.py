"""PPFL on other populations (Di et al., arXiv:2310.14337): one without groups,
and one of logistic regressions whose models are known.
"""

import numpy as np
import pytest

from tests.testing import toys
from tff_algos.algorithms import fed_avg
from tff_algos.algorithms.ppfl import membership_descent, ppfl
from tff_algos.data import schema
from tff_algos.numerics import optimizers
from tff_algos.runtimes.vectorized import vectorized_runtime
from tff_algos.stages.client import local_training


def _source(x, y, dtype):
  """Clients with examples `[n, d]` and labels, of no known source."""
  return toys.ToySource(
    [
      schema.Examples(
        one.astype(np.float32), other.astype(dtype), np.zeros(len(one), 'i4')
      )
      for one, other in zip(x, y, strict=True)
    ]
  )


def _train(algorithm, source, num_rounds):
  num_clients = source.population.num_clients
  with vectorized_runtime.VectorizedRuntime(algorithm, num_clients) as runtime:
    return toys.run_rounds(algorithm, source, num_rounds, runtime=runtime)[:2]


def _served(server_state, client_states):
  """The model of mixed weights of each client, and their memberships."""
  c = np.stack([one.membership for one in client_states])
  return c @ server_state.model_weights['canonical']['kernel'][..., 0], c


@pytest.mark.verify
def test_without_groups_it_is_no_better_than_fed_avg():
  """Nine clients of one distribution. Fitting a membership to the noise of 40
  examples costs a little, so it is worse; but not by much, as all canonical
  models have learned the same.
  """
  generator = np.random.default_rng(1)
  planted = np.array([1.0, -2, 0.5, 0, 1, 1])
  x = generator.normal(size=(9, 40, 6))
  y = x @ planted + 0.5 * generator.normal(size=(9, 40))
  source = _source(x, y, np.float32)
  options = {
    'loss_scale': 0.5,
    'local_training': local_training.LocalTrainingConfig(5, 40),
  }
  state, states = _train(
    ppfl.build_ppfl(
      toys.linear(6),
      ppfl.PpflConfig(
        num_clusters=3,
        mixing='parameters',
        membership=membership_descent.MembershipConfig(
          0.2, gradient_weight='none'
        ),
        **options,
      ),
    ),
    source,
    100,
  )
  # Expected squared errors beyond the noise, as features are standard normal.
  errors = np.sum((_served(state, states)[0] - planted) ** 2, axis=1)
  state, _ = _train(
    fed_avg.build_fed_avg(toys.linear(6), fed_avg.FedAvgConfig(9, **options)),
    source,
    100,
  )
  of_one = np.sum((state.model_weights['kernel'][:, 0] - planted) ** 2)
  assert of_one < errors.mean() < 0.05
  assert of_one < 0.01


@pytest.mark.verify
def test_planted_logistic_regressions_are_recovered():
  """What each client is served, of 8 clients with 400 labels each. Labels are
  drawn, so some error is left; one model for all would leave five times as much.
  """
  generator = np.random.default_rng(2)
  thetas = 2 * generator.normal(size=(2, 4))
  true = np.stack([np.roll([0.9, 0.1], i % 2) for i in range(8)])
  x = generator.normal(size=(8, 400, 4))
  chances = 1 / (1 + np.exp(-np.einsum('ind,id->in', x, true @ thetas)))
  y = generator.uniform(size=chances.shape) < chances
  model = toys.build(
    {
      'name': 'logistic_regression',
      'use_bias': False,
      'reference_class': True,
    },
    (4,),
    2,
  )
  state, states = _train(
    ppfl.build_ppfl(
      model,
      ppfl.PpflConfig(
        mixing='parameters',
        membership=membership_descent.MembershipConfig(
          0.5, gradient_weight='none'
        ),
        local_training=local_training.LocalTrainingConfig(
          5, 400, optimizers.OptimizerConfig('sgd', 0.5)
        ),
      ),
    ),
    _source(x, y, np.int32),
    150,
  )
  found, c = _served(state, states)
  planted = true @ thetas

  def error(served):
    return np.linalg.norm(served - planted) / np.linalg.norm(planted)

  assert error(found) < 0.15
  assert error(np.tile(planted.mean(axis=0), (8, 1))) > 0.5
  # Clients of one mixture have one main cluster, the others the other.
  assert (
    len(set(c.argmax(axis=1)[::2])) == len(set(c.argmax(axis=1)[1::2])) == 1
  )
  assert c[0].argmax() != c[1].argmax()
