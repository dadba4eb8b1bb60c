"""Tests of who attacks, and of what is refused."""

import numpy as np
import pytest

from tests.testing import running_sum, toys
from tff_algos.adversaries import attacks
from tff_algos.algorithms import registry
from tff_algos.core import errors

_IDS = tuple(f'c{i:03d}' for i in range(30))
_Config = attacks.AttackConfig


def _drawn(**options):
  found = attacks.attackers(_Config(**options), _IDS, 0)
  return tuple(np.flatnonzero(found))


def test_listed_clients_attack():
  drawn = _drawn(name='zero', client_ids=('c007', 'c002'))
  assert drawn == (2, 7)


def test_without_an_attack_the_algorithm_is_the_very_same():
  algorithm = running_sum.algorithm()
  nobody = attacks.attackers(_Config(), _IDS, 0)
  assert not nobody.any()
  assert attacks.attack(algorithm, _Config(), nobody) is algorithm
  assert _Config().identity() == {}
  assert _Config(fraction=0.2).identity() == {}


def test_an_attack_is_part_of_what_decides_a_run():
  one, other = (
    _Config('zero', fraction=0.1, space=space).identity()
    for space in attacks.SPACES
  )
  assert one != other
  assert one['attack']['name'] == 'zero'


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    ({'name': 'flip'}, "name must be one of 'none', 'label_flip'"),
    ({'name': 'zero'}, 'exactly one of the two'),
    ({'name': 'zero', 'fraction': 0.1, 'client_ids': ('a',)}, 'exactly one'),
    ({'fraction': 1.0}, 'fraction must be'),
    ({'space': 'gradient'}, "space must be one of 'update', 'model'"),
    ({'minimum_scale': 1.0}, 'minimum_scale must be'),
    ({'noise_deviation': 0.0}, 'noise_deviation must be'),
    ({'num_deviations': -1.0}, 'num_deviations must be'),
    ({'ipm_factor': 0.0}, 'ipm_factor must be'),
    ({'perturbation': 'mean'}, 'perturbation must be one of'),
    ({'accepted_share': 0.0}, 'accepted_share must be'),
    ({'accepted_share': 1.5}, 'accepted_share must be'),
  ],
)
def test_bad_options_are_refused(options, words):
  with pytest.raises(errors.ConfigError, match=words):
    _Config(**options)


def test_attackers_must_exist():
  with pytest.raises(
    errors.ConfigError, match="'c999', an unknown client id; the 30"
  ):
    _drawn(name='zero', client_ids=('c001', 'c999'))
  with pytest.raises(
    errors.ConfigError, match='0.01 of 30 clients is less than one'
  ):
    _drawn(name='zero', fraction=0.01)


def test_an_algorithm_must_say_what_is_uploaded():
  config = _Config('zero', fraction=0.1)
  with pytest.raises(errors.ConfigError, match="algorithm 'running_sum' does"):
    attacks.attack(running_sum.algorithm(), config, np.ones(3, bool))


def test_labels_of_a_regression_cannot_be_flipped():
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': 'fed_avg'}), toys.linear(2)
  )
  config = _Config('label_flip', fraction=0.1)
  with pytest.raises(errors.ConfigError, match='is for regression'):
    attacks.attack(algorithm, config, np.ones(3, bool))
