"""Every option of an experiment can be overridden by a flag, in every config."""

import dataclasses
import importlib.util
import types
import typing
from collections.abc import Mapping

import pytest
from absl import flags
from ml_collections import config_flags

from configs import base
from pipelines.partitions import registry as laws
from pipelines.sources import registry as sources
from tests.testing import programs
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import config_values, experiment
from tff_algos.models import registry as models

# Those of own data lack the place of the data: `configs_test.py`.
_FILES = sorted(
  path
  for path in (programs.ROOT / 'configs').glob('*/*.py')
  if path.parent.name != 'own'
)
# Of each type, a text behind a flag, and what the option then is.
_OTHERS = {
  bool: ('true', True),
  float: ('7', 7.0),
  int: ('7', 7),
  str: ('7', '7'),
  tuple: ("('a', 7)", ('a', 7)),
}


def _flags(*arguments: str):
  values = flags.FlagValues()
  argv = ['program', *arguments]
  config_flags.DEFINE_config_file(
    'config', flag_values=values, sys_argv=argv, lock_config=True
  )
  values(argv)
  return values.config


def _options(config_class, values) -> dict:
  """Returns dotted key -> type of all options, from the dataclasses alone."""
  found = {}
  hints = typing.get_type_hints(config_class)
  for field in dataclasses.fields(config_class):
    hint, value = hints[field.name], getattr(values, field.name, None)
    if hint is config_lib.Named:
      inner = {'name': str, **_options(type(value.options), value.options)}
    elif dataclasses.is_dataclass(hint):
      inner = _options(hint, value)
    elif typing.get_origin(hint) is Mapping:
      inner = _options(_class_of_mapping(values), None)
    else:
      found[field.name] = hint
      continue
    found |= {f'{field.name}.{key}': one for key, one in inner.items()}
  return found


def _class_of_mapping(values):
  if hasattr(values, 'law'):
    return laws.options_class(values.law)
  return sources.SOURCES[values.name][0]


def _type(hint):
  if isinstance(hint, types.UnionType):
    hint = typing.get_args(hint)[0]
  return typing.get_origin(hint) or hint


@pytest.mark.parametrize(
  'path', _FILES, ids=lambda path: f'{path.parent.name}/{path.stem}'
)
def test_every_option_is_overridden_by_a_flag(path):
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  parsed = experiment.parse(module.get_config())
  options = {
    key: _OTHERS[_type(hint)]
    for key, hint in _options(experiment.ExperimentConfig, parsed).items()
  }
  assert len(options) > 80
  config = _flags(
    f'--config={path}',
    *(f'--config.{key}={text}' for key, (text, _) in options.items()),
  )
  found = config_lib.flatten(config.to_dict())
  assert found == {key: value for key, (_, value) in options.items()}


def test_a_training_at_the_end_follows_the_number_of_rounds():
  flag = '--config=configs/fine_tuning/digits.py'
  config = _flags(flag, '--config.training.num_rounds=7')
  assert config.algorithm.personalization_interval == 7
  assert config.training.evaluation_interval == 7
  config = _flags(flag, '--config.training.evaluation_interval=7')
  assert config.algorithm.personalization_interval == 30
  assert config.training.num_rounds == 30


def _bases():
  fixed = {'model': 'mlp', 'source': 'digits', 'law': 'iid'}
  algorithm = {'algorithm': 'fed_avg'}
  for name in algorithms.ALGORITHMS:
    yield {**fixed, 'algorithm': name}
  for name in models.MODELS:
    yield {**fixed, **algorithm, 'model': name}
  for name in sources.SOURCES:
    yield {**fixed, **algorithm, 'source': name}
  for name in ('10:90', 'natural', *laws.DIVISIONS):
    yield {**fixed, **algorithm, 'law': name}


@pytest.mark.parametrize(
  'names', [*_bases()], ids=lambda names: '-'.join(names.values())
)
def test_a_base_has_the_defaults_of_what_it_names(names):
  config = base.experiment(names.pop('algorithm'), **names)
  plain = config.to_dict()
  section = plain['algorithm']
  bare = algorithms.parse_config({'name': section['name']})
  assert algorithms.parse_config(section) == bare
  section = plain['model']
  assert models.parse_config(section) == models.parse_config(
    {'name': section['name']}
  )
  assert set(plain['dataset']['source']['options'].values()) <= {None}
  with pytest.raises(KeyError, match='locked'):
    config.dataset.partition.options.update(new_key=1)


def test_what_has_no_default_must_be_set():
  config = base.experiment(
    'fed_avg', model='mlp', source='idx', law='dirichlet'
  )
  missing = (
    ('name', 'x', 'config.name is missing'),
    ('dataset.partition.num_clients', 3, 'num_clients must be an integer >= 1'),
    (
      'dataset.partition.options.concentration',
      0.3,
      'concentration is missing',
    ),
    ('dataset.source.options.folder', 'x', 'source.options.folder is missing'),
    ('training.num_rounds', 2, 'config.training.num_rounds is missing'),
  )
  values = config.to_dict()
  for key, value, _ in missing:
    config_values.assign(values, key, value, '')
  experiment.parse_plain(values)
  for key, value, words in missing:
    config_values.assign(values, key, None, '')
    with pytest.raises(errors.ConfigError, match=words):
      experiment.parse_plain(values)
    config_values.assign(values, key, value, '')


_LETTERS = f'--config={programs.ROOT}/configs/cmfl/femnist.py:similar'


@pytest.mark.parametrize(
  ('argument', 'words'),
  [
    (
      'model.name=mlp',
      "config.model has no key 'decomposition'.* by a flag, give the section: "
      "--config.model=\"{'name': 'mlp', ...}\"",
    ),
    ('algorithm.name=gossip', "give the section: --config.algorithm=\"{'name'"),
    (
      'dataset.partition.law=shards',
      "no key 'concentration'.* besides: --config.dataset.partition.options=",
    ),
    (
      'dataset.source.name=tfds',
      "no key 'folder'.* besides: --config.dataset.source.options=",
    ),
  ],
)
def test_a_flag_that_changes_a_name_must_give_its_options(argument, words):
  config = _flags(_LETTERS, f'--config.{argument}')
  with pytest.raises(errors.ConfigError, match=words):
    experiment.parse(config)


def test_sections_are_given_whole_by_flags():
  config = _flags(
    _LETTERS,
    "--config.model={'name': 'mlp', 'hidden_sizes': (9,)}",
    "--config.algorithm={'name': 'gossip'}",
    '--config.dataset.partition.law=shards',
    "--config.dataset.partition.options={'shards_per_client': 3}",
    '--config.dataset.source.name=tfds',
    "--config.dataset.source.options={'name': 'emnist'}",
  )
  parsed = experiment.parse(config)
  assert parsed.model.options.hidden_sizes == (9,)
  assert parsed.algorithm == algorithms.parse_config({'name': 'gossip'})
  assert parsed.dataset.partition.options['shards_per_client'] == 3
  assert parsed.dataset.source.options == {'name': 'emnist'}
