import dataclasses

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
    ({'max_dead_letter_fraction': 1.0}, '>= 0 and < 1'),
    ({'sizez': {}}, "no key 'sizez'; did you mean 'sizes'"),
    ({'source': {'name': 'mnist'}}, "source.name must be one of .*'digits'"),
    (
      {'source': {'name': 'digits', 'options': {'size': 3}}},
      "source.options has no key 'size'",
    ),
    ({'partition': {'law': '10:80', 'num_clients': 2}}, 'A \\+ B = 100'),
    ({'partition': {'law': 'dirichlet', 'num_clients': 2}}, 'concentration'),
    ({'partition': {'law': 'zipf', 'num_clients': 2}}, "'random', 'class"),
    (
      {'partition': {'law': 'iid', 'num_clients': 2, 'options': {'a': 1}}},
      "options has no key 'a'",
    ),
    (
      {
        'partition': {
          'law': 'shards',
          'num_clients': 2,
          'options': {'shards_per_client': 2},
        }
      },
      "'shards' decides the sizes itself",
    ),
    ({'partition': {'law': 'iid'}}, 'num_clients must be an integer >= 1'),
    ({'partition': {'law': 'iid', 'num_clients': 0}}, 'num_clients'),
    ({'partition': {'law': 'natural', 'num_clients': 0}}, 'num_clients'),
    (
      {
        'partition': {'law': 'natural'},
        'source': {
          'name': 'csv',
          'options': {
            'path': 't.csv',
            'label_column': 'y',
            'feature_columns': ('a',),
          },
        },
        'distributions': {},
        'sizes': {},
      },
      'set source.options.client_column to its column',
    ),
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
    ({'distributions': {'kind': 'noise'}}, 'needs noise_levels'),
    (
      {'distributions': {'kind': 'noise', 'noise_levels': (0.0, -1.0)}},
      'noise_levels must be',
    ),
    (
      {'distributions': {'kind': 'colors', 'colors': ('sepia',)}},
      "one of 'original'",
    ),
    (
      {'distributions': {'kind': 'colors', 'colors': ('gray', 'gray')}},
      'different colors',
    ),
    ({'sizes': {'law': 'uniform', 'minimum': 3}}, 'needs maximum'),
    ({'sizes': {'law': 'equal', 'maximum': 3}}, 'takes no maximum'),
    (
      {'sizes': {'law': 'uniform', 'minimum': 3, 'maximum': 2}},
      'maximum must be an integer >= 3',
    ),
    (
      {'sizes': {'law': 'power_law', 'minimum': 3, 'maximum': 5}},
      'needs exponent',
    ),
    (
      {
        'sizes': {
          'law': 'power_law',
          'exponent': 1.0,
          'minimum': 0,
          'maximum': 5,
        }
      },
      'minimum must be an integer >= 1',
    ),
    ({'sizes': {'law': 'dirichlet'}}, 'needs concentration'),
    (
      {'sizes': {'law': 'dirichlet', 'concentration': 1e-9}},
      'concentration must be a number from 1e-6 to 1e6',
    ),
    (
      {'sizes': {'law': 'lognormal', 'log_mean': 4.0, 'minimum': 1}},
      'needs log_deviation',
    ),
    ({'splits': {'test_ratio': -0.1}}, 'test_ratio'),
    ({'splits': {'split_by': 'user'}}, "one of 'content', 'group'"),
    ({'splits': {'time_gap': 1.0}}, "'content' takes no time_gap, got 1.0"),
    ({'splits': {'split_by': 'time', 'time_gap': -1.0}}, 'time_gap'),
    ({'splits': {'client_test': 'some'}}, "one of 'ratio', 'dealt'"),
    (
      {'splits': {'client_test': 'dealt', 'test_ratio': 0.1}},
      'takes no test_ratio',
    ),
    ({'splits': {'client_test': 'dealt'}}, "'10:90' mixes distributions"),
    (
      {'splits': {'client_test': 'all_of_classes'}},
      'needs a scheme that gives clients classes',
    ),
    ({'splits': {'split_by': 'client'}}, 'deals a raw example once in every'),
    (
      {
        'partition': {
          'law': 'shards',
          'num_clients': 2,
          'options': {'shards_per_client': 2},
        },
        'sizes': {},
        'distributions': {
          'kind': 'label_permutations',
          'num_permutations': 2,
        },
      },
      'name them differently',
    ),
    ({'splits': {'held_out_fraction': 2.0}}, 'held_out_fraction'),
    (
      {
        'partition': {
          'law': 'natural',
          'num_unseen_clients': 1,
          'options': {'unseen_fraction': 0.1},
        }
      },
      'unseen_fraction=0.1 .* num_unseen_clients=1 as well. Leave',
    ),
  ],
)
def test_bad_config(overrides, text):
  with pytest.raises(errors.ConfigError, match=text):
    raw_data.digits_config(**overrides)


def test_options_of_a_law_have_all_defaults():
  config = options.PartitionConfig(
    'shards', num_clients=2, options={'shards_per_client': 2}
  )
  assert config.options == {'shards_per_client': 2, 'distinct_classes': True}
  assert config == dataclasses.replace(config)
  assert config.law_options.distinct_classes
  assert config.divides_classes


def test_nested_options_round_trip():
  config = raw_data.digits_config(
    distributions={},
    sizes={},
    partition={
      'law': 'class_groups',
      'num_clients': 4,
      'options': {'class_groups': [[0, 1], [2]]},
    },
  )
  values = config_lib.to_dict(config)
  assert config_lib.from_dict(options.DatasetConfig, values) == config


@pytest.mark.parametrize(
  ('distributions', 'num_views'),
  [
    ({}, 1),
    ({'kind': 'native'}, 1),
    ({'kind': 'rotations', 'quarter_turns': (0, 1, 2)}, 3),
    ({'kind': 'label_permutations', 'num_permutations': 4}, 4),
    ({'kind': 'noise', 'noise_levels': (0.0, 1.0)}, 2),
    ({'kind': 'colors', 'colors': ('gray', 'gbr')}, 2),
  ],
)
def test_views_of_a_distribution(distributions, num_views):
  config = options.DistributionsConfig(**distributions)
  assert config.num_views == num_views


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
