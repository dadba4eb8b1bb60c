"""Under attack the mean fails and robust rules do not, on a small federation.

Eleven clients have examples of one linear model and take one full step of gradient
descent a round; three of them attack. The honest ones alone would come close to
the model; the distance to it after 30 rounds is what an attack does.
"""

import numpy as np
import pytest

from tests.testing import toys
from tff_algos.adversaries import attacks
from tff_algos.algorithms import registry
from tff_algos.numerics import robust_rules

_THETA = np.array([[2.0, -1.0]])
_SOURCE = toys.linear_clients(_THETA, np.ones([11, 1]), [40] * 11)
_IS_ATTACKER = np.isin(np.arange(11), [1, 4, 8])
_ROUNDS = 30
_RULES = {
  'median': {},
  'trimmed_mean': {'trim_fraction': 0.3},
  'krum': {'num_byzantine': 3},
  'multi_krum': {'num_byzantine': 3},
  'committee': {},
  'bulyan': {'num_byzantine': 2},
  'geometric_median': {},
}


def _build(aggregation=None, attack=None):
  section = {
    'name': 'fed_avg',
    'cohort_size': 11,
    'local_training': {
      'num_local_epochs': 1,
      'batch_size': 40,
      'optimizer': {'name': 'sgd', 'learning_rate': 0.1},
    },
    'aggregation': aggregation or {},
  }
  algorithm = registry.build_algorithm(
    registry.parse_config(section), toys.linear(2)
  )
  if attack is None:
    return algorithm
  config = attacks.AttackConfig(**attack, fraction=0.3)
  return attacks.attack(algorithm, config, _IS_ATTACKER)


def _distance(algorithm):
  """Returns the distance to the planted model after the rounds."""
  with toys.graph_runtime(algorithm, 11) as runtime:
    state, _, _ = toys.run_rounds(algorithm, _SOURCE, _ROUNDS, runtime=runtime)
  found = np.ravel(state.model_weights['kernel'])
  return np.linalg.norm(found - _THETA[0])


_IPM = {'name': 'ipm', 'ipm_factor': 4.0}


@pytest.mark.verify
def test_the_mean_learns_without_an_attack_and_diverges_under_one():
  """Eight honest clients and three with -4 times their mean: -4/11 of it."""
  honest = _distance(_build())
  attacked = _distance(_build(attack=_IPM))
  start = np.linalg.norm(_THETA)
  assert honest < 0.2
  assert attacked > 2 * start


@pytest.mark.verify
@pytest.mark.parametrize('rule', sorted(_RULES))
def test_every_rule_resists(rule):
  others = {'mean', 'norm_clipping', 'centered_clipping'}
  assert _RULES.keys() == robust_rules.RULES.keys() - others
  assert _distance(_build({'rule': rule, **_RULES[rule]}, _IPM)) < 0.5


@pytest.mark.verify
@pytest.mark.parametrize('rule', ['norm_clipping', 'centered_clipping'])
def test_clipping_bounds_what_an_attack_does(rule):
  """At the distance e, eight clients step about 0.2 e forward and three 0.8 e
  back, but no more than the radius, 0.2: they balance at e = 0.375.
  """
  options = {'rule': rule, 'clipping_radius': 0.2, 'num_iterations': 2}
  assert _distance(_build(options, _IPM)) < 0.7


@pytest.mark.verify
def test_hiding_attacks_hurt_the_mean_less_than_blunt_ones():
  """Min-max and min-sum stay among the honest updates, so even the mean gets
  through: their damage is a shift of some deviations.
  """
  honest = _distance(_build())
  for name in ('min_max', 'min_sum'):
    assert 1.5 * honest < _distance(_build(attack={'name': name})) < 0.2


def _updates(kernel):
  """Returns every client's step along its own gradient, float64 `[11, 2]`."""
  steps = []
  for k in range(11):
    x, y = _SOURCE.examples(k).x.astype(np.float64), _SOURCE.examples(k).y
    steps.append(-0.1 * 2 * x.T @ (x @ kernel - y) / len(y))
  return np.array(steps)


@pytest.mark.parametrize(
  ('attack', 'factor'), [(None, 1), ('zero', 0), ('sign_flip', -1)]
)
def test_what_the_mean_makes_of_false_updates(attack, factor):
  """Three of eleven updates are taken as they are, zero times, negated."""
  attacked = _build(attack=attack and {'name': attack})
  before = toys.initial_states(attacked, _SOURCE.population)[0]
  after, _, _ = toys.run_rounds(attacked, _SOURCE, 1)
  start, end = (np.ravel(s.model_weights['kernel']) for s in (before, after))
  factors = np.where(_IS_ATTACKER, factor, 1)[:, np.newaxis]
  expected = (factors * _updates(start.astype(np.float64))).mean(axis=0)
  np.testing.assert_allclose(end - start, expected, rtol=1e-5, atol=1e-6)
