"""Reference of config options: complete, and equal to what configs have."""

import pytest

from configs import base
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import config_reference
from tff_algos.models import registry as models


def _sections():
  return [
    pytest.param(section, id=f'{kind}-{name}')
    for kind, names in config_reference.sections().items()
    for name, section in names.items()
  ]


@pytest.mark.parametrize('section', _sections())
def test_every_option_has_a_type_and_a_meaning(section):
  assert section.summary
  for option in config_reference.options(section.config_class, section.key):
    assert option.meaning, f'{option.key}: no line in the docstring'
    assert option.type
    assert option.key.startswith(f'{section.key}.')


def test_keys_and_defaults_are_those_of_a_config():
  config = base.experiment(
    'fed_avg', model='mlp', source='csv', law='dirichlet'
  )
  values = config_lib.flatten({'config': config.to_dict()})
  for kind, name in (
    ('algorithm', 'fed_avg'),
    ('model', 'mlp'),
    ('source', 'csv'),
    ('partition', 'dirichlet'),
    ('section', 'training'),
    ('section', 'runtime'),
  ):
    section = config_reference.find(kind, name)
    found = {
      option.key: option.default
      for option in config_reference.options(section.config_class, section.key)
    }
    expected = {
      key: repr(value)
      for key, value in values.items()
      if key.startswith(f'{section.key}.')
      and key not in ('config.algorithm.name', 'config.model.name')
    }
    assert {*found} == {*expected}
    # A source's options are None in a config until they are set.
    if kind != 'source':
      given = {k: v for k, v in found.items() if v is not None}
      assert given == {key: expected[key] for key in given}


def test_required_options_and_defaults_of_nested_sections():
  options = {
    option.key: option
    for option in config_reference.options(
      models.MODELS['lenet'].config_class, 'config.model'
    )
  }
  assert options['config.model.variant'] == (
    'config.model.variant',
    'str',
    "'fed_dyn'",
    "'fed_dyn', 'fed_rep', 'fed_rep_wide' or 'fed_pac'.",
  )
  # From a base class, and from a nested dataclass.
  assert options['config.model.compute_dtype'].default == "'float32'"
  assert options['config.model.pretrained.file'].type
  training = config_reference.describe('section', 'training')
  assert (
    '--config.training.num_rounds: Total number of rounds, >= 1; of a run'
    in training
  )
  assert '(int; required)' in training
  assert '--config.training.restarts.num_restarts:' in training


@pytest.mark.parametrize(
  ('key', 'expected'),
  [
    ('algorithm.local_training', True),
    ('algorithm.local_training.optimizer.clip_norm', True),
    ('training.checkpoint_interval', True),
    ('dataset.partition.options.concentration', True),
    ('algorithm.local', False),
    ('algorithm.num_clusters', False),
    ('model.hidden_sizes', False),
  ],
)
def test_options_of_a_config_that_does_not_spell_them(key, expected):
  config = {
    'algorithm': {'name': 'fed_avg'},
    'model': {'name': 'no_such'},
    'dataset': {'partition': {'law': 'dirichlet'}},
  }
  assert config_reference.has_option(config, key) == expected


def test_names_are_listed_by_kind():
  text = config_reference.list_names()
  for line in (
    '--algorithm=',
    '  fed_soft  ',
    '  10:90  ',
    '  csv  ',
    '  mlp  ',
  ):
    assert line in text


def test_any_shares_are_a_partition_and_other_names_are_refused():
  shares = config_reference.find('partition', '30:70')
  assert shares == config_reference.find('partition', '10:90')
  assert 'It has no options.' in config_reference.describe('partition', '30:70')
  with pytest.raises(
    errors.ConfigError, match="algorithm must be one of .*'fed_soft'.*, got 'x'"
  ):
    config_reference.find('algorithm', 'x')
