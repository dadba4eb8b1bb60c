"""Plug-ins: imported once, each refused by its name."""

import dataclasses
import importlib
import sys
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Optional

import pytest

from tff_algos.core import errors, plugins


class _Entry(NamedTuple):
  config_class: Any
  build: Any


@dataclasses.dataclass(frozen=True)
class _Options:
  size: int = 1


@dataclasses.dataclass(frozen=True)
class _Inner:
  mode: Literal['a', 'b'] = 'a'


def _with(hint, field='size'):
  """Returns a config class that also has a field of a type."""
  return dataclasses.make_dataclass(
    'Own', [(field, hint, None)], bases=(_Options,), frozen=True
  )


def _build(options):
  return options


@pytest.fixture(name='write')
def _write(tmp_path, monkeypatch):
  """Writes a module where it can be imported, for this test alone."""
  monkeypatch.syspath_prepend(tmp_path)
  before = set(sys.modules)

  def write(name, code):
    (tmp_path / f'{name}.py').write_text(code)

  yield write
  for name in set(sys.modules) - before:
    del sys.modules[name]


def test_a_plug_in_is_imported_once(write):
  write('own_plugin', 'import sys\nsys.plugin_imports += 1\n')
  sys.plugin_imports = 0
  plugins.load(['own_plugin'])
  plugins.load(['own_plugin'])
  assert sys.plugin_imports == 1
  del sys.plugin_imports


def test_installed_packages_name_theirs_in_a_group(write, tmp_path):
  write('installed_plugin', 'NAME = 1\n')
  folder = tmp_path / 'installed-1.0.dist-info'
  folder.mkdir()
  (folder / 'METADATA').write_text('Name: installed\nVersion: 1.0\n')
  (folder / 'entry_points.txt').write_text(
    '[tff_algos.plugins]\nany = installed_plugin\n'
  )
  importlib.invalidate_caches()
  plugins.load()
  assert 'installed_plugin' in sys.modules


@pytest.mark.parametrize(
  ('code', 'text'),
  [
    ('import nowhere\n', "No module named 'nowhere' .*own_plugin.py, line 1"),
    (
      '\n1 / 0\n',
      'ZeroDivisionError: division by zero .*own_plugin.py, line 2',
    ),
    ('x = (\n', "SyntaxError: '.' was never closed"),
    (
      'from tff_algos.core import errors\nraise errors.ConfigError("taken")\n',
      "^plug-in 'own_plugin': taken$",
    ),
  ],
)
def test_an_error_names_the_plug_in_and_the_place(write, code, text):
  write('own_plugin', code)
  with pytest.raises(errors.ConfigError, match=text) as raised:
    plugins.load(['own_plugin'])
  assert "plug-in 'own_plugin'" in str(raised.value)


@pytest.mark.parametrize('name', ['absent', 'absent.part', 'json.absent'])
def test_a_missing_module_is_named(name):
  with pytest.raises(errors.ConfigError, match=f"'{name}': .* PYTHONPATH"):
    plugins.load([name])


def test_an_entry_is_registered_once():
  registry = {}
  plugins.register(registry, 'model', 'net_2', _Entry(_Options, _build))
  assert registry['net_2'].build is _build
  with pytest.raises(
    errors.ConfigError,
    match=f"model 'net_2' is registered already, by {__name__}; choose another",
  ):
    plugins.register(registry, 'model', 'net_2', _Entry(_Options, print))
  assert registry['net_2'].build is _build


def test_a_module_registers_its_entry_again():
  code = 'def build(options): pass\n'
  registry = {}
  for _ in range(2):  # After an error in a later line, or a reload.
    build = {'__name__': 'own_plugin'}
    exec(code, build)
    plugins.register(registry, 'model', 'net', _Entry(_Options, build['build']))
  assert registry['net'].build is build['build']


def test_one_module_may_be_named_without_a_list(write):
  write('own_plugin', 'raise ValueError("read")\n')
  with pytest.raises(errors.ConfigError, match="plug-in 'own_plugin'.* read"):
    plugins.load('own_plugin')


def test_a_cell_of_a_notebook_registers_again():
  def first(options):
    return options

  def second(options):
    return options

  first.__module__ = second.__module__ = '__main__'
  registry = {}
  for build in (first, second):
    plugins.register(registry, 'model', 'net', _Entry(_Options, build))
  assert registry['net'].build is second


@pytest.mark.parametrize(
  'hint',
  [
    *(bool, int, float, str, Any, dict, Mapping[str, Any], dict[str, int]),
    *(float | None, Optional[int], tuple[tuple[int, ...], ...] | None),  # noqa: UP045
    tuple[_Options, ...],
  ],
)
def test_an_option_has_a_type_that_configs_read(hint):
  registry = {}
  plugins.register(registry, 'model', 'net', _Entry(_with(hint), _build))
  assert list(registry) == ['net']


def test_a_source_may_have_an_option_called_name():
  registry = {}
  entry = _Entry(_with(str, 'name'), _build)
  plugins.register(registry, 'source', 'own_tfds', entry)
  assert list(registry) == ['own_tfds']


@pytest.mark.parametrize(
  ('name', 'config_class', 'text'),
  [
    ('Net', _Options, "name of a model must be lower-case letters, .* 'Net'"),
    ('my-net', _Options, "got 'my-net'"),
    ('net', int, 'must be a dataclass derived from _Options, got .*int'),
    ('net', _Options(), 'must be a dataclass derived from _Options, got'),
    (
      'net',
      _with(list[int]),
      r"'net': Own.size has the type list\[int\], which",
    ),
    (
      'net',
      _with(tuple[int, str]),
      r'type tuple\[int, str\], .* Take bool, int',
    ),
    ('net', _with(tuple), "Own.size has the type <class 'tuple'>"),
    ('net', _with(_Inner | None), 'Own.size.mode has the type typing.Literal'),
    ('net', _with(str, 'name'), "Own has a field 'name', which in configs is"),
  ],
)
def test_a_malformed_entry_is_refused(name, config_class, text):
  registry = {}
  with pytest.raises(errors.ConfigError, match=text):
    plugins.register(
      registry, 'model', name, _Entry(config_class, _build), _Options
    )
  assert not registry
