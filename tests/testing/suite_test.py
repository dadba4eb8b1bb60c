"""Tests of the suite's plugin: the order of tests, and their groups."""

import pathlib
import subprocess
import sys
import tomllib
import types

import pytest

from tests.testing import suite

_ROOT = pathlib.Path(__file__).parents[2]


class _Item:
  """What the plugin asks of a test."""

  def __init__(self, name: str, *marks: pytest.Mark, fixtures=()):
    self.nodeid = name
    self.fixturenames = fixtures
    self.marks = {mark.name: mark for mark in marks}

  def get_closest_marker(self, name):
    return self.marks.get(name)

  def add_marker(self, decorator):
    self.marks[decorator.mark.name] = decorator.mark


_GROUP = pytest.mark.xdist_group(suite._SHARED).mark
_ITEMS = [
  _Item('a_test.py::test_1'),
  _Item('b_test.py::test_1'),
  _Item('b_test.py::test_2'),
  _Item('c_test.py::test_1', _GROUP),
  _Item('c_test.py::test_2'),
]


def _ordered(loadgroup=False, shuffle=None):
  config = types.SimpleNamespace(
    option=types.SimpleNamespace(loadgroup=loadgroup),
    getoption={'shuffle': shuffle}.__getitem__,
  )
  items = [_Item(item.nodeid, *item.marks.values()) for item in _ITEMS]
  suite.pytest_collection_modifyitems(config, items)
  return items


def _names(items):
  return [item.nodeid.replace('_test.py::test_', '') for item in items]


def test_processes_get_long_groups_first():
  items = _ordered(loadgroup=True)
  assert _names(items) == ['c1', 'a1', 'b1', 'b2', 'c2']
  groups = [item.marks['xdist_group'].args[0] for item in items]
  files = ['a_test.py', 'b_test.py', 'b_test.py', 'c_test.py']
  assert groups == [suite._SHARED, *files]


def test_a_seed_decides_a_random_order_that_keeps_groups_together():
  orders = [_names(_ordered(shuffle=seed)) for seed in range(20)]
  assert _names(_ordered(shuffle=3)) == orders[3]
  assert len({tuple(order) for order in orders}) > 5
  for order in orders:
    assert sorted(order) == ['a1', 'b1', 'b2', 'c1', 'c2']
    assert abs(order.index('b1') - order.index('b2')) == 1


def test_files_with_shared_fixtures_are_one_group():
  items = [
    _Item('a_test.py::test_1'),
    _Item('b_test.py::test_1', fixtures=('launcher', 'finished_run')),
    _Item('b_test.py::test_2'),
    _Item('c_test.py::test_1', fixtures=('trained_regressions',)),
  ]
  suite._group_files(items)
  groups = [item.marks['xdist_group'].args[0] for item in items]
  assert groups == ['a_test.py', *[suite._SHARED] * 3]


def test_the_second_tier_is_left_out_unless_it_is_asked_for():
  project = tomllib.loads((_ROOT / 'pyproject.toml').read_text())
  options = project['tool']['pytest']['ini_options']['addopts']
  assert "-m 'not verify'" in options


@pytest.mark.verify
def test_a_file_stays_in_one_process(tmp_path):
  """With pytest-xdist itself, whose processes know of it by another option."""
  for name in 'abcd':
    (tmp_path / f'{name}_test.py').write_text(
      'import os, pathlib, pytest\n'
      "@pytest.mark.parametrize('number', range(6))\n"
      'def test(number):\n'
      f"  with open('{tmp_path}/{name}.txt', 'a') as file:\n"
      "    file.write(os.environ['PYTEST_XDIST_WORKER'])\n"
    )
  program = subprocess.run(
    [
      *(sys.executable, '-m', 'pytest', '-n', '2', '--dist=loadgroup'),
      *('-c', str(_ROOT / 'pyproject.toml'), '--rootdir', str(tmp_path)),
      str(tmp_path),
    ],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert program.returncode == 0, program.stdout + program.stderr
  used = [(tmp_path / f'{name}.txt').read_text() for name in 'abcd']
  assert {len(one) for one in used} == {6 * 3}
  assert [one for one in used if one not in ('gw0' * 6, 'gw1' * 6)] == []
  assert len(set(used)) == 2
