"""The source files of the project, for the tests of its structure."""

import pathlib

from tests.architecture import rooms

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
  """Returns the room of a file: the innermost of `rooms`, else its folder."""
  folders = path.parts[:-1]
  for depth in range(len(folders), 0, -1):
    room = '.'.join(folders[:depth])
    if room in rooms.MAY_IMPORT:
      return room
  return '.'.join(folders)
