"""No list of mutations goes stale: each mutation applies, its tests exist."""

import re

import pytest

from tests.mutations import lists
from tests.testing import programs

_MUTATION = lists.Mutation(
  'room', 'name', 'a.py', 'x = 1', 'x = 2', ['tests/a_test.py']
)


def _missing_tests(mutation: lists.Mutation) -> list[str]:
  """Returns the tests of a mutation that are not there."""
  missing = []
  for test in mutation.tests:
    file, *names = re.sub(r'\[.*', '', test, flags=re.DOTALL).split('::')
    path = programs.ROOT / file
    text = path.read_text() if path.is_file() else ''
    if not text or any(
      not re.search(rf'^\s*(def|class) {name}\b', text, re.MULTILINE)
      for name in names
    ):
      missing.append(test)
  return missing


@pytest.mark.parametrize('room', lists.rooms(programs.ROOT))
def test_mutations_apply_and_their_tests_exist(room):
  for mutation in lists.read(programs.ROOT, room):
    mutation.apply((programs.ROOT / mutation.file).read_text())
    assert mutation.tests, mutation.title
    assert not _missing_tests(mutation), mutation.title


def test_mutation_replaces_the_one_place():
  assert _MUTATION.apply('x = 1\ny = 1\n') == 'x = 2\ny = 1\n'


@pytest.mark.parametrize(
  ('text', 'changes', 'complaint'),
  [
    ('y = 1\n', {}, 'occurs 0 times'),
    ('x = 1\nx = 1\n', {}, 'occurs 2 times'),
    ('x = 1\n', {'old': ''}, 'occurs 0 times'),
    ('x = 1\n', {'new': 'x = 1'}, '`new` equals `old`'),
    ('x = 1\n', {'new': 'return'}, 'does not compile'),
  ],
)
def test_broken_mutation_is_refused(text, changes, complaint):
  broken = lists.Mutation(**{**vars(_MUTATION), **changes})
  with pytest.raises(ValueError, match=f'room: name: .*{complaint}'):
    broken.apply(text)


@pytest.mark.parametrize(
  ('test', 'is_missing'),
  [
    ('tests/mutations/lists_test.py', False),
    ('tests/mutations/lists_test.py::test_missing_test_is_found[a::b]', False),
    ('tests/mutations/lists_test.py::test_of_long_ago', True),
    ('tests/mutations/no_test.py', True),
    ('tests/mutations', True),
  ],
)
def test_missing_test_is_found(test, is_missing):
  mutation = lists.Mutation(**{**vars(_MUTATION), 'tests': [test]})
  assert _missing_tests(mutation) == [test] * is_missing


_TABLE = """
[[mutation]]
name = "name"
file = "a.py"
old = "x = 1"
new = "x = 2"
"""


@pytest.mark.parametrize(
  ('text', 'complaint'),
  [
    ('', 'not a list of mutations'),
    ('mutation = []', 'of different names'),
    (_TABLE.replace('new', 'newer'), 'unexpected keyword'),
    (_TABLE.replace('file = "a.py"', ''), "'file'"),
    (_TABLE + _TABLE, 'of different names'),
    ('goal = 1\n' + _TABLE, 'no more'),
    ('[[mutation', 'not a list of mutations'),
  ],
)
def test_list_that_is_none_is_refused(tmp_path, text, complaint):
  assert lists.rooms(tmp_path) == []
  folder = tmp_path / lists.FOLDER
  folder.mkdir(parents=True)
  (folder / 'room.toml').write_text(_TABLE)
  assert lists.rooms(tmp_path) == ['room']
  assert lists.read(tmp_path, 'room') == [_MUTATION]
  (folder / 'room.toml').write_text(text)
  with pytest.raises(ValueError, match=complaint):
    lists.read(tmp_path, 'room')
  with pytest.raises(ValueError, match='another.toml'):
    lists.read(tmp_path, 'another')
