"""The BUILD files say the same as `rooms.py`: who may import whom."""

import ast

import pytest

from tests.architecture import rooms, source_tree

_LIBRARIES = sorted({*rooms.MAY_IMPORT} - {'binaries', 'configs', 'tff_algos'})


def _attributes(room: str) -> dict[str, list[str]]:
  """Returns the lists among the attributes of a room's py_library."""
  text = (source_tree.ROOT / room.replace('.', '/') / 'BUILD').read_text()
  # The BUILD language is a part of Python.
  (rule,) = [
    node
    for node in ast.walk(ast.parse(text))
    if isinstance(node, ast.Call) and node.func.id == 'py_library'
  ]
  return {
    keyword.arg: ast.literal_eval(keyword.value)
    for keyword in rule.keywords
    if isinstance(keyword.value, ast.List)
  }


def _lists(build: str, keyword: str) -> list[str]:
  """Returns the strings in all values of a keyword in a BUILD file."""
  tree = ast.parse((source_tree.ROOT / build).read_text())
  return [
    node.value
    for value in ast.walk(tree)
    if isinstance(value, ast.keyword) and value.arg == keyword
    for node in ast.walk(value)
    if isinstance(node, ast.Constant)
  ]


def _label(room: str) -> str:
  return '//' + room.replace('.', '/')


@pytest.mark.parametrize('room', _LIBRARIES)
def test_dependencies_are_what_the_room_may_import(room):
  expected = {_label(other) for other in rooms.MAY_IMPORT[room]}
  assert set(_attributes(room)['deps']) - {'//tff_algos'} == expected


@pytest.mark.parametrize('room', _LIBRARIES)
def test_visibility_names_who_may_import_the_room(room):
  expected = {'//:wiring'}
  for other in _LIBRARIES:
    if room in rooms.MAY_IMPORT[other]:
      expected.add(f'{_label(other)}:__pkg__')
  assert set(_attributes(room)['visibility']) == expected


def test_files_at_the_root_that_tests_name_are_given_to_them():
  folder = source_tree.ROOT / 'tests'
  patterns = _lists('tests/BUILD', 'exclude')
  excluded = {
    path
    for pattern in patterns
    if pattern != '**/*_test.py'
    for path in folder.glob(pattern)
  }
  text = ''.join(
    path.read_text() for path in {*folder.rglob('*.py')} - excluded
  )
  named = {
    path.name
    for path in source_tree.ROOT.iterdir()
    # A worktree has a file of that name.
    if path.is_file() and path.name != '.git' and f"'{path.name}'" in text
  }
  assert {'Makefile', 'README.md'} <= named
  assert {f'//:{name}' for name in named} <= {*_lists('tests/BUILD', 'data')}
