"""Tests of the suite's plugin: tiers, order, and what is charged to whom."""

import collections
import pathlib
import subprocess
import sys
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


_VERIFY = pytest.mark.verify.mark
_GROUP = pytest.mark.xdist_group('shared').mark
_ITEMS = [
  _Item('a_test.py::test_1'),
  _Item('b_test.py::test_1'),
  _Item('b_test.py::test_2', _VERIFY),
  _Item('c_test.py::test_1', _GROUP),
  _Item('c_test.py::test_2'),
]


def _ordered(monkeypatch, markexpr='', loadgroup=False, shuffle=None):
  options = {'markexpr': markexpr, 'shuffle': shuffle}
  config = types.SimpleNamespace(
    option=types.SimpleNamespace(loadgroup=loadgroup),
    getoption=lambda name, default=None: options[name],
    hook=types.SimpleNamespace(pytest_deselected=lambda items: None),
  )
  seconds = {'test': {'b_test.py': 2.0, 'shared': 3.0}}
  monkeypatch.setattr(suite, 'recorded', lambda tier: seconds.get(tier, {}))
  items = [_Item(item.nodeid, *item.marks.values()) for item in _ITEMS]
  suite.pytest_collection_modifyitems(config, items)
  return items


def _names(items):
  return [item.nodeid.replace('_test.py::test_', '') for item in items]


def test_the_second_tier_is_left_out_unless_it_is_asked_for(monkeypatch):
  assert _names(_ordered(monkeypatch)) == ['a1', 'b1', 'c1', 'c2']
  assert 'b2' not in _names(_ordered(monkeypatch, 'not slow'))
  assert 'b2' in _names(_ordered(monkeypatch, 'verify'))


def test_processes_get_the_costliest_groups_first(monkeypatch):
  items = _ordered(monkeypatch, loadgroup=True)
  assert _names(items) == ['c1', 'b1', 'a1', 'c2']
  groups = [item.marks['xdist_group'].args[0] for item in items]
  assert groups == ['shared', 'b_test.py', 'a_test.py', 'c_test.py']


def test_a_seed_decides_a_random_order_that_keeps_groups_together(monkeypatch):
  orders = [
    _names(_ordered(monkeypatch, 'verify', shuffle=seed)) for seed in range(20)
  ]
  again = _names(_ordered(monkeypatch, 'verify', shuffle=3))
  assert again == orders[3]
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


def test_a_group_is_charged_with_its_tests_and_their_programs(monkeypatch):
  seconds = iter([10.0, 13.0, 20.0, 20.5])
  monkeypatch.setattr(suite.time, 'process_time', lambda: next(seconds))
  monkeypatch.setattr(
    suite.resource,
    'getrusage',
    lambda _: types.SimpleNamespace(ru_utime=1.0, ru_stime=1.0),
  )
  monkeypatch.setattr(suite, '_costs', costs := collections.Counter())
  for name, programs in (('a', 7.0), ('b', 0.0)):
    hook = suite.pytest_runtest_protocol(_Item(f'a_test.py::test_{name}'))
    next(hook)
    suite.charge(programs)
    with pytest.raises(StopIteration, match='result'):
      hook.send('result')
  assert costs == {'a_test.py': 3.0 + 7.0 + 0.5}
