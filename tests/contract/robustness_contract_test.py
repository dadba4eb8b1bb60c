"""What robust rules and attacks promise for every registered algorithm."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, toys
from tff_algos.adversaries import attacks
from tff_algos.algorithms import registry
from tff_algos.core import errors

_IS_ATTACKER = np.array([True, False, False, True, False])
_WITH_RULES = [
  name
  for name, entry in registry.ALGORITHMS.items()
  # FedDyn's server goes on from the mean by its own correction.
  if hasattr(entry.config_class, 'aggregation') and name != 'fed_dyn'
]
# Algorithm, model, aggregation and attack: rules by coordinate and by distances,
# attacks of single clients, whose work is vectorized with the regression, and of
# all together, which is the server's.
_CASES = [
  ('fed_avg', 'logistic', {'rule': 'geometric_median'}, 'gaussian_noise'),
  pytest.param(
    'fed_avg',
    'logistic',
    {'rule': 'trimmed_mean'},
    'label_flip',
    marks=pytest.mark.verify,
  ),
  pytest.param(
    'fed_soft',
    'convolution',
    {'rule': 'median'},
    'alie',
    marks=pytest.mark.verify,
  ),
  pytest.param(
    'ifca',
    'convolution',
    {'rule': 'centered_clipping'},
    'min_max',
    marks=pytest.mark.verify,
  ),
  pytest.param(
    'pfedkm',
    'convolution',
    {'rule': 'multi_krum', 'num_selected': 2},
    'label_flip',
    marks=pytest.mark.verify,
  ),
  pytest.param(
    'ppfl',
    'convolution',
    {'rule': 'committee'},
    'sign_flip',
    marks=pytest.mark.verify,
  ),
]


def _build(name, aggregation=None, model='mlp'):
  section = contract.section(name, 'mlp')
  if hasattr(registry.ALGORITHMS[name].config_class, 'weighting'):
    section['weighting'] = 'examples'
  if aggregation:
    section['aggregation'] = aggregation
  # Without the checks of types, which another test has made.
  _, options = registry.parse_config(section)
  return registry.ALGORITHMS[name].build(contract.MODELS[model](), options)


@pytest.mark.parametrize(
  'name', sorted({*_WITH_RULES, 'fed_dyn'} - {'fed_soft'})
)
def test_a_population_too_small_for_a_rule_is_refused(name):
  entry = registry.ALGORITHMS[name]
  section = contract.section(name, 'mlp')
  if hasattr(entry.config_class, 'cohort_size'):
    section['cohort_size'] = 0
  section['aggregation'] = {'rule': 'krum', 'num_byzantine': 1}
  built = entry.build(
    contract.MODELS['mlp'](), registry.parse_config(section)[1]
  )
  with pytest.raises(errors.ConfigError, match='the number of clients is 4'):
    built.init_server_state(tf.constant([0, 0]), 4)


def _attack(algorithm, name, is_attacker=_IS_ATTACKER):
  config = attacks.AttackConfig(name, fraction=0.4)
  return attacks.attack(algorithm, config, is_attacker)


# One batch a client and epoch.
_SOURCE = contract.build_source((3, 0, 1, 4, 2))


@functools.cache
def _plain(name):
  """Returns an algorithm without attack and rule, and its first round."""
  algorithm = _build(name)
  return algorithm, toys.run_rounds(algorithm, _SOURCE, 1)


@pytest.mark.slow
@pytest.mark.parametrize('name, model, aggregation, attack', _CASES)
def test_runtimes_agree_under_attack(name, model, aggregation, attack):
  algorithm = _attack(_build(name, aggregation, model), attack)
  contract.run_on_all_runtimes(algorithm, contract.build_source())


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_every_algorithm_says_what_is_uploaded(name):
  """With nobody attacking, marking clients changes no bit, and looking at the
  cohort none but those of sums; with all attacking, models differ.
  """
  plain, expected = _plain(name)
  nobody, everybody = np.zeros(5, bool), np.ones(5, bool)
  for attack in ('sign_flip', 'ipm'):
    algorithm = _attack(plain, attack, nobody)
    found = toys.run_rounds(algorithm, _SOURCE, 1)
    if attack == 'sign_flip':
      np.testing.assert_equal(found[:2], expected[:2])
    else:
      for one, other in zip(found[:2], expected[:2], strict=True):
        contract.assert_all_close(one, other)
  algorithm = _attack(plain, 'sign_flip', everybody)
  found = toys.run_rounds(algorithm, _SOURCE, 1)
  gap = np.abs(
    np.ravel(plain.cluster_weights(found[0])['dense_0/kernel'])
    - np.ravel(plain.cluster_weights(expected[0])['dense_0/kernel'])
  ).max()
  assert gap > 1e-3


@pytest.mark.parametrize('name', _WITH_RULES)
def test_an_algorithm_with_one_mean_takes_a_rule(name):
  """No model goes farther in a round than the clipped updates let it; if they
  are not clipped, it is the mean, with the same weights.
  """
  radius = 0.001
  robust, loose = (
    _build(name, {'rule': 'norm_clipping', 'clipping_radius': one})
    for one in (radius, 1e6)
  )
  before = toys.initial_states(robust, _SOURCE.population)[0]
  after, unclipped = (
    toys.run_rounds(one, _SOURCE, 1)[0] for one in (robust, loose)
  )
  plain = _plain(name)[1][0]
  contract.assert_all_close(
    robust.cluster_weights(unclipped), robust.cluster_weights(plain)
  )
  for state, low, high in (
    (after, 0.1 * radius, 1.001 * radius),
    (plain, 10 * radius, np.inf),
  ):
    steps = [
      np.square(one - other).reshape(len(one), -1).sum(axis=1)
      for one, other in zip(
        tf.nest.flatten(robust.cluster_weights(state)),
        tf.nest.flatten(robust.cluster_weights(before)),
        strict=True,
      )
    ]
    # FedEM judges all models of a client together.
    longest = np.sqrt(np.sum(steps, axis=0)).max()
    assert low <= longest <= high
