"""Config files besides that of `--config`."""

import pathlib

import ml_collections
import pytest

from configs.fed_soft import synthetic
from tests.testing import programs
from tff_algos.core import errors
from tff_algos.experiments import config_file

_BASE = synthetic.get_config('smoke').to_dict()
_SYNTHETIC = str(programs.ROOT / 'configs' / 'fed_soft' / 'synthetic.py')
_CONFIG = """
import ml_collections


def get_config(variant='full'):
  if variant not in ('full', 'smoke'):
    raise ValueError(f"variant must be 'full' or 'smoke', got {variant!r}")
  return ml_collections.ConfigDict({'variant': variant})
"""


@pytest.fixture
def path(tmp_path):
  path = tmp_path / 'config.py'
  path.write_text(_CONFIG)
  return str(path)


def test_variant_is_chosen(path):
  assert config_file.load(path).variant == 'full'
  assert config_file.load(f'{path}:smoke').variant == 'smoke'


def test_installed_config_is_found_from_any_folder(monkeypatch, tmp_path):
  installed = programs.ROOT / 'configs' / 'ifca' / 'digits.py'
  monkeypatch.chdir(tmp_path)
  found = config_file.find('configs/ifca/digits.py:smoke')
  assert found == f'{installed}:smoke'
  assert config_file.load('configs/ifca/digits.py').algorithm.name == 'ifca'
  own = tmp_path / 'configs' / 'ifca' / 'digits.py'
  own.parent.mkdir(parents=True)
  own.touch()
  assert config_file.find('configs/ifca/digits.py') == 'configs/ifca/digits.py'


@pytest.mark.parametrize(
  ('line', 'words'),
  [
    ('config.training.num_round = 3', "'num_round'. Did you mean \"num_rounds"),
    ('config.trainin.num_rounds = 3', "'trainin'. Did you mean \"training"),
    ("config['trainin']", "'trainin'. Did you mean \"training"),
    ('config.training.update(num_round=3)', "'num_round'. Did you mean"),
    ('config.update(zzz=3)', "there is no key 'zzz'."),
    ("config.seed = 'x'", "override field 'seed'.*to type <class 'int'>"),
  ],
)
def test_a_mistake_in_a_config_file_is_one_short_error(
  tmp_path, monkeypatch, line, words
):
  monkeypatch.chdir(tmp_path)
  path = pathlib.Path('own.py')
  path.write_text(
    'from configs.fed_soft import digits\ndef get_config():\n'
    f'  config = digits.get_config()\n  {line}\n  return config\n'
  )
  with pytest.raises(
    errors.ConfigError, match=f'own.py, line 4: .*{words}'
  ) as e:
    config_file.load(str(path))
  assert len(str(e.value)) < 300


def test_a_mistake_in_a_function_of_another_file(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(tmp_path)
  (tmp_path / 'shared_by_two.py').write_text(
    'from configs.fed_soft import digits\ndef get_config():\n'
    '  config = digits.get_config()\n  config.zzz = 3\n'
  )
  path = tmp_path / 'own.py'
  path.write_text('from shared_by_two import get_config\n')
  words = "own.py: .*shared_by_two.py, line 4: there is no key 'zzz'"
  with pytest.raises(errors.ConfigError, match=words):
    config_file.load(str(path))


def test_a_bug_in_a_config_file_keeps_its_trace(tmp_path):
  path = tmp_path / 'own.py'
  path.write_text('def get_config():\n  return None.training\n')
  with pytest.raises(AttributeError, match='NoneType'):
    config_file.load(str(path))


def test_a_config_is_found_by_its_name():
  installed = programs.ROOT / 'configs' / 'ifca' / 'digits.py'
  assert config_file.find('ifca/digits:smoke') == f'{installed}:smoke'
  assert config_file.find('ifca/digit') == 'ifca/digit'


@pytest.mark.parametrize(
  ('spelled', 'expected'),
  [
    ('fed_soft/digits', 'fed_soft_digits'),
    ('configs/fed_soft/digits.py:smoke', 'fed_soft_digits_smoke'),
    ('/home/me/configs/fed_soft/digits.py', 'fed_soft_digits'),
    ('/home/me/air.py:ifca', 'air_ifca'),
    ('data/air.py', 'data_air'),
  ],
)
def test_name_of_a_run(spelled, expected):
  assert config_file.name_of(spelled) == expected


def test_a_file_that_is_not_python_is_named(tmp_path):
  path = tmp_path / 'config.txt'
  path.touch()
  with pytest.raises(errors.ConfigError, match=r'config.txt: a config is a Py'):
    config_file.load(str(path))


def test_what_is_not_there_is_named(path):
  with pytest.raises(errors.ConfigError, match="no file 'no/such.py'"):
    config_file.load('no/such.py:smoke')
  with pytest.raises(errors.ConfigError, match="config.py:x: .*got 'x'"):
    config_file.load(f'{path}:x')


@pytest.mark.parametrize(
  ('content', 'variant', 'words'),
  [
    ('', '', r'config\.py: the file has no get_config\(\), so it is no config'),
    (
      'def get_config():\n  pass\n',
      ':smoke',
      r"py:smoke: get_config\(\) takes no variant, got 'smoke': leave it out",
    ),
    (
      'def get_config(variant):\n  pass\n',
      '',
      r'get_config\(variant\) needs a variant: name one, as in .*py:VARIANT',
    ),
    *(
      (
        'def get_config(variant, *, source):\n  pass\n',
        variant,
        r'py.*source\) is shared by other config files: name one of them',
      )
      for variant in ('', ':ifca')
    ),
    (_CONFIG, ':', 'config.py:: the variant behind the colon is missing; name'),
    (
      'def get_config():\n  pass\n',
      '',
      r"get_config\(\) returns None, not a ConfigDict; end it with 'return",
    ),
  ],
)
def test_a_file_that_takes_no_such_variant(path, content, variant, words):
  pathlib.Path(path).write_text(content)
  with pytest.raises(errors.ConfigError, match=words):
    config_file.load(path + variant)


def test_labels_are_variants_of_one_file_or_else_paths():
  a, b = {'n': 1}, {'n': 2}
  assert config_file.labelled(
    ['configs/fed_soft/synthetic.py', 'configs/fed_soft/synthetic.py:linear'],
    [a, b],
  ) == {'default': a, 'linear': b}
  assert config_file.labelled(
    ['/home/x/configs/fed_soft/digits.py:smoke', 'configs/ifca/digits.py'],
    [a, b],
  ) == {'fed_soft/digits:smoke': a, 'ifca/digits': b}
  both = ['/a/configs/x.py', '/b/configs/x.py']
  assert [*config_file.labelled(both, [a, b])] == both


def test_a_config_given_twice_is_refused():
  with pytest.raises(errors.ConfigError, match='given twice'):
    config_file.labelled(['a.py:x', 'a.py:x'], [{}, {}])


def test_further_configs_get_the_same_overrides():
  found = config_file.bases(
    _BASE,
    f'{_SYNTHETIC}:smoke',
    [':linear', ':random'],
    {'training.num_rounds': 7},
  )
  assert list(found) == ['smoke', 'linear', 'random']
  assert found['smoke'] is _BASE
  assert found['linear']['dataset']['partition']['law'] == 'linear'
  assert found['random']['training']['num_rounds'] == 7


def test_an_override_replaces_sections_of_further_configs():
  model = ml_collections.ConfigDict({'name': 'logistic_regression'})
  found = config_file.bases(
    _BASE, f'{_SYNTHETIC}:smoke', [':linear'], {'model': model}
  )
  assert found['linear']['model'] == {'name': 'logistic_regression'}


def test_an_override_must_fit_further_configs():
  with pytest.raises(errors.ConfigError, match='linear: --config=x.y'):
    config_file.bases(_BASE, f'{_SYNTHETIC}:smoke', [':linear'], {'x.y': 1})
