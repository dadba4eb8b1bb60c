"""Every source file has its test file, and the reverse."""

import pathlib

from tests.architecture import source_tree


def _sources() -> set[pathlib.PurePath]:
  paths = source_tree.python_files(*source_tree.SOURCE_ROOMS)
  return {path for path in paths if path.name != '__init__.py'}


def _tests() -> set[pathlib.PurePath]:
  folders = [f'tests/{room}' for room in source_tree.SOURCE_ROOMS]
  paths = source_tree.python_files(*folders)
  return {path for path in paths if path.name.endswith('_test.py')}


def _test_of(source: pathlib.PurePath) -> pathlib.PurePath:
  return 'tests' / source.with_name(f'{source.stem}_test.py')


def test_every_source_has_its_test():
  missing = {_test_of(source) for source in _sources()} - _tests()
  assert not missing, '\n'.join(sorted(map(str, missing)))


def test_every_test_has_its_source():
  stray = _tests() - {_test_of(source) for source in _sources()}
  assert not stray, '\n'.join(sorted(map(str, stray)))
