"""The source files of the project, for the tests of its structure."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]
SOURCE_ROOMS = ('tff_algos', 'pipelines', 'binaries')


def python_files(*folders: str) -> list[pathlib.PurePath]:
  """Returns the Python files below some folders, relative to the root."""
  return sorted(
    path.relative_to(ROOT)
    for folder in folders
    for path in (ROOT / folder).rglob('*.py')
  )


def read(path: pathlib.PurePath) -> str:
  """Returns the text of a file of the project."""
  return (ROOT / path).read_text()


def room_of(path: pathlib.PurePath) -> str:
  """Returns the room that a file belongs to, such as `tff_algos.core`."""
  depth = 2 if path.parts[0] == 'tff_algos' and len(path.parts) > 2 else 1
  return '.'.join(path.parts[:depth])
