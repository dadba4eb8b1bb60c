"""Every config builds, has a smoke variant, and says how to run it."""

import ast
import functools
import importlib.util
import inspect
import pathlib
import re
import shlex

import ml_collections
import pytest

from tff_algos.algorithms import registry
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import experiment
from tff_algos.experiments.production import nightly

_ROOT = pathlib.Path(__file__).parents[2]
# Those of own data have no data, and a variant for each algorithm.
_OWN = sorted((_ROOT / 'configs' / 'own').glob('*.py'))
_FILES = sorted({*(_ROOT / 'configs').glob('*/*.py')} - {*_OWN})
# What ships with the dependencies, or is made up from a seed.
_SOURCES_WITHOUT_DATA = {
  'digits',
  'linear_regression',
  'logistic_mixture',
  'softmax_groups',
}


@functools.cache
def _load(path: pathlib.Path):
  spec = importlib.util.spec_from_file_location(path.stem, path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def _variants(module) -> list[str]:
  """Returns the words that `get_config` accepts, by its own refusal."""
  with pytest.raises(ValueError, match="got 'no such variant'") as caught:
    module.get_config('no such variant')
  said = str(caught.value).partition(', got ')[0]
  words = re.findall(r'\w+', said.partition('must be ')[2])
  return [word for word in words if word not in ('one', 'of', 'or')]


_CASES = [(path, one) for path in _FILES for one in _variants(_load(path))]


def _case_id(value) -> str:
  return (
    str(value.relative_to(_ROOT)) if isinstance(value, pathlib.Path) else value
  )


@pytest.mark.parametrize(('path', 'variant'), _CASES, ids=_case_id)
def test_variant_builds_an_experiment_of_its_folder(path, variant):
  config = _load(path).get_config(variant)
  assert isinstance(config, ml_collections.ConfigDict)
  parsed = experiment.parse(config)
  assert parsed.algorithm.name == path.parent.name
  config_lib.config_hash(parsed)  # It is JSON-ready.


@pytest.mark.parametrize('path', _FILES, ids=_case_id)
def test_smoke_variant_is_small_and_needs_no_data(path):
  config = experiment.parse(_load(path).get_config('smoke'))
  assert config.training.num_rounds <= 5
  assert config.dataset.source.name in _SOURCES_WITHOUT_DATA
  assert config.dataset.partition.num_clients <= 30


@pytest.mark.parametrize('path', _FILES, ids=_case_id)
def test_default_is_the_full_experiment(path):
  module = _load(path)
  default = inspect.signature(module.get_config).parameters['variant'].default
  assert default in _variants(module)
  assert default != 'smoke'


@pytest.mark.parametrize('path', _FILES, ids=_case_id)
def test_docstring_holds_the_command_that_runs_it(path):
  docstring = ast.get_docstring(ast.parse(path.read_text()))
  commands = re.findall(r'python -m binaries\.(\w+) --config=(\S+)', docstring)
  assert commands, f'{path} does not say how to run it'
  for binary, config in commands:
    assert (_ROOT / 'binaries' / f'{binary}.py').exists()
    named, _, variant = config.partition(':')
    assert _ROOT / named == path
    assert not variant or variant in _variants(_load(path))
  assert '--workdir=' in docstring
  assert '`smoke`' in docstring


@pytest.mark.parametrize(
  ('path', 'variant'),
  [one for one in _CASES if 'binaries.nightly' in one[0].read_text()],
  ids=_case_id,
)
def test_nights_take_every_variant_of_their_configs(path, variant):
  config = experiment.parse(_load(path).get_config(variant))
  nightly._check_dataset(config.dataset)


@pytest.mark.parametrize(
  ('name', 'hidden_size'), [('sentiment140', 100), ('shakespeare', 256)]
)
def test_repo_is_the_code_of_cmfls_authors(name, hidden_size):
  config = _load(_ROOT / 'configs' / 'cmfl' / f'{name}.py').get_config('repo')
  training = config.algorithm.local_training
  assert config.model.hidden_size == hidden_size
  assert (training.batch_size, training.optimizer.learning_rate) == (32, 0.005)


_OWN_OPTIONS = {
  'arrays': {'folder': 'data'},
  'images': {'folder': 'data'},
  'table': {
    'path': 'data/t.parquet',
    'client_column': 'user_id',
    'label_column': 'y',
    'features': ({'name': 'a'},),
  },
  'text': {'path': 't.csv', 'client_column': 'who', 'label_column': 'y'},
}


@pytest.mark.parametrize('path', _OWN, ids=_case_id)
def test_own_data_need_their_place_alone(path):
  for variant in _variants(_load(path)):
    config = _load(path).get_config(variant)
    with pytest.raises(errors.ConfigError, match='(folder|path) is missing'):
      experiment.parse(config)
    config.dataset.source.options.update(_OWN_OPTIONS[path.stem])
    assert experiment.parse(config).algorithm.name == variant
  assert _load(path).get_config().algorithm.name == 'fed_avg'


def test_fed_soft_divides_the_cohort_of_own_data_among_its_clusters():
  def options(name, num_clients):
    module = _load(_ROOT / 'configs' / 'own_data.py')
    return module.get_config(
      name, source='table', model='mlp', num_clients=num_clients
    ).algorithm

  assert options('ifca', 12).cohort_size == 6
  assert options('fed_soft', 12).cohort_size_per_cluster == 3
  assert options('fed_soft', 1).cohort_size_per_cluster == 1


@pytest.mark.parametrize('path', _OWN, ids=_case_id)
def test_command_in_the_docstring_of_own_data_is_whole(path):
  text = ast.get_docstring(ast.parse(path.read_text()))
  command = text[text.index('python -m') :].partition('\n\n')[0]
  argv = shlex.split(command.replace('\\\n', ' '))
  config = _load(path).get_config()
  for argument in argv[3:]:
    key, _, value = argument.removeprefix('--config.').partition('=')
    if argument.startswith('--config.'):
      *sections, last = key.split('.')
      section = functools.reduce(getattr, sections, config)
      section[last] = _literal(value)
  experiment.parse(config)
  assert f'--config={path.relative_to(_ROOT)}' in argv


def _literal(text):
  return ast.literal_eval(text) if text.startswith('(') else text


def test_every_algorithm_has_a_config():
  folders = {path.parent.name for path in _FILES}
  assert folders >= registry.ALGORITHMS.keys()
