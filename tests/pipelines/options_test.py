import hypothesis
import pytest
from hypothesis import strategies

from pipelines import options
from tests.testing import raw_data
from tff_algos.core import config as config_lib
from tff_algos.core import errors


def test_round_trip():
  config = raw_data.digits_config()
  values = config_lib.to_dict(config)
  assert config_lib.from_dict(options.DatasetConfig, values) == config


@pytest.mark.parametrize(
  ('overrides', 'text'),
  [
    ({'seed': -1}, 'seed must be an integer >= 0'),
    ({'num_shards': 0}, 'num_shards'),
    ({'max_dead_letter_fraction': 1.5}, 'from 0 to 1'),
    ({'sizez': {}}, "no key 'sizez'; did you mean 'sizes'"),
    ({'source': {'name': 'mnist'}}, "source.name must be one of .*'digits'"),
    (
      {'source': {'name': 'digits', 'options': {'size': 3}}},
      "source.options has no key 'size'",
    ),
    ({'partition': {'law': '10:80', 'num_clients': 2}}, 'A \\+ B = 100'),
    ({'partition': {'law': 'dirichlet', 'num_clients': 2}}, "'random'"),
    ({'partition': {'law': 'iid'}}, 'num_clients must be an integer >= 1'),
    ({'partition': {'law': 'iid', 'num_clients': 0}}, 'num_clients'),
    ({'partition': {'law': 'natural', 'num_clients': 5}}, 'leave it None'),
    ({'distributions': {'kind': 'rotations'}}, 'needs quarter_turns'),
    (
      {'distributions': {'kind': 'identity', 'quarter_turns': (0,)}},
      'takes no quarter_turns',
    ),
    (
      {'distributions': {'kind': 'rotations', 'quarter_turns': (0, 4)}},
      'from 0 to 3',
    ),
    (
      {'distributions': {'kind': 'rotations', 'quarter_turns': (1, 1)}},
      'different turns',
    ),
    (
      {'distributions': {'kind': 'rotations', 'quarter_turns': ()}},
      'at least one',
    ),
    ({'distributions': {'kind': 'blur'}}, "one of 'identity'"),
    ({'sizes': {'law': 'uniform', 'minimum': 3}}, 'needs maximum'),
    ({'sizes': {'law': 'equal', 'maximum': 3}}, 'takes no maximum'),
    (
      {'sizes': {'law': 'uniform', 'minimum': 3, 'maximum': 2}},
      'maximum must be an integer >= 3',
    ),
    ({'splits': {'test_ratio': -0.1}}, 'test_ratio'),
    ({'splits': {'held_out_fraction': 2.0}}, 'held_out_fraction'),
  ],
)
def test_bad_config(overrides, text):
  with pytest.raises(errors.ConfigError, match=text):
    raw_data.digits_config(**overrides)


def test_shares_of_a_law():
  config = options.PartitionConfig('30:70', num_clients=2)
  assert config.shares == (0.3, 0.7)
  assert options.PartitionConfig('random', num_clients=2).shares is None


@hypothesis.given(
  strategies.dictionaries(
    strategies.sampled_from(
      ['source', 'partition', 'sizes', 'splits', 'seed', 'num_shards', 'x']
    ),
    strategies.recursive(
      strategies.none()
      | strategies.booleans()
      | strategies.integers()
      | strategies.floats()
      | strategies.text(),
      lambda inner: (
        strategies.lists(inner)
        | strategies.dictionaries(
          strategies.sampled_from(['name', 'law', 'num_clients', 'minimum']),
          inner,
        )
      ),
      max_leaves=5,
    ),
  )
)
def test_any_values_give_a_config_or_a_config_error(values):
  try:
    raw_data.digits_config(**values)
  except errors.ConfigError as error:
    assert len(str(error)) > 10
