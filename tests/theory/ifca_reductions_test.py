"""What IFCA becomes in special cases, and what it finds.

Ghosh et al. (2020). With one cluster it is FedAvg, bit for bit. Well-separated
linear regressions are told apart.
"""

import numpy as np
import pytest

from tests.testing import contract, toys
from tff_algos.algorithms import fed_avg, ifca
from tff_algos.evaluation import recovery
from tff_algos.numerics import optimizers
from tff_algos.stages.client import local_training

_TRAINING = local_training.LocalTrainingConfig(
  2, 4, optimizers.OptimizerConfig('sgd', 0.1)
)


def test_one_cluster_by_examples_is_fed_avg_bit_for_bit():
  options = {'cohort_size': 3, 'local_training': _TRAINING}
  source, model = contract.build_source(), toys.mlp()
  one = ifca.build_ifca(
    model,
    ifca.IfcaConfig(
      num_clusters=1,
      weighting='examples',
      server_learning_rate=0.7,
      **options,
    ),
  )
  other = fed_avg.build_fed_avg(
    model,
    fed_avg.FedAvgConfig(
      server_optimizer=optimizers.OptimizerConfig('sgd', 0.7), **options
    ),
  )
  server_state, states = toys.initial_states(one, source.population)
  first = fed_avg.ServerState(
    {name: leaf[0] for name, leaf in server_state.cluster_models.items()}
  )
  found, _, outputs = toys.run_rounds(
    one, source, 3, start=(server_state, states)
  )
  expected, _, expected_outputs = toys.run_rounds(
    other, source, 3, start=(first, [()] * len(contract.SIZES))
  )
  for name, leaf in found.cluster_models.items():
    np.testing.assert_array_equal(leaf[0], expected.model_weights[name])
  for output, expected_output in zip(outputs, expected_outputs, strict=True):
    assert output.client_metrics == expected_output.client_metrics


# Two groups that lie far apart; 8 examples of 3 features pin a model down.
_THETAS = np.array([[5.0, 0, -2], [-3, 4, 1]])
_GROUPS = np.array([0, 1, 1, 0, 1, 0, 0, 1])
_PLANTED = toys.linear_clients(
  _THETAS, np.eye(2)[_GROUPS], [8, 30, 12, 25, 9, 16, 40, 10], seed=2
)


def _train(averaging, num_rounds, seed, **options):
  algorithm = ifca.build_ifca(
    toys.linear(3),
    ifca.IfcaConfig(
      cohort_size=len(_GROUPS),
      averaging=averaging,
      weighting='examples',
      loss_scale=0.5,
      local_training=local_training.LocalTrainingConfig(
        1, 64, optimizers.OptimizerConfig('sgd', 0.5)
      ),
      **options,
    ),
  )
  server_state, states, _ = toys.run_rounds(
    algorithm, _PLANTED, num_rounds, seed
  )
  centers = server_state.cluster_models['kernel'][..., 0]
  return centers, np.array([state.membership.argmax() for state in states])


def _least_squares(group):
  """The best that one model can do for the examples of one group."""
  clients = [_PLANTED.examples(k) for k in np.flatnonzero(_GROUPS == group)]
  x = np.concatenate([client.x for client in clients]).astype(np.float64)
  y = np.concatenate([client.y for client in clients]).astype(np.float64)
  return np.linalg.lstsq(x, y, rcond=None)[0]


@pytest.mark.parametrize(
  ('averaging', 'options', 'seed'),
  [
    ('models', {}, 0),
    pytest.param('models', {}, 1, marks=pytest.mark.verify),
    ('gradients', {'server_learning_rate': 1.0}, 1),
  ],
)
def test_planted_regressions_are_found(averaging, options, seed):
  """One full-batch step: gradient descent on the pooled examples of a group,
  so the models are the groups' least-squares solutions.
  """
  centers, choices = _train(averaging, 20, seed, **options)
  assert recovery.recovery(choices, _GROUPS).ari == 1
  for k, group in enumerate(_GROUPS):
    np.testing.assert_allclose(
      centers[choices[k]], _least_squares(group), atol=1e-3
    )
