"""Lists of mutations: `<room>.toml`, one table `[[mutation]]` for each.

name = "what is broken, a phrase"
file = "path of the mutated file"
old = "text that occurs exactly once in the file"
new = "text that takes its place"
tests = ["test files or node ids that should fail"]  # by default the file's own
"""

import dataclasses
import pathlib
import tomllib

FOLDER = pathlib.PurePath('tests/mutations')


@dataclasses.dataclass(frozen=True)
class Mutation:
  """A small fault of the code; the attributes are explained above."""

  room: str
  name: str
  file: str
  old: str
  new: str
  tests: list[str]

  @property
  def title(self) -> str:
    return f'{self.room}: {self.name}'

  def apply(self, text: str) -> str:
    """Returns the mutated text of the file.

    Raises:
      ValueError: The mutation is broken.
    """
    count = text.count(self.old) if self.old else 0
    if count != 1:
      raise ValueError(
        f'{self.title}: `old` occurs {count} times in {self.file}, not once'
      )
    mutated = text.replace(self.old, self.new)
    if mutated == text:
      raise ValueError(f'{self.title}: `new` equals `old`')
    if self.file.endswith('.py'):
      try:
        compile(mutated, self.file, 'exec')
      except SyntaxError as error:
        raise ValueError(f'{self.title}: does not compile: {error}') from error
    return mutated


def rooms(root: pathlib.Path) -> list[str]:
  """Returns the rooms that have a list."""
  return sorted(path.stem for path in (root / FOLDER).glob('*.toml'))


def read(root: pathlib.Path, room: str) -> list[Mutation]:
  """Returns the mutations of one room, at least one.

  Raises:
    ValueError: The list is not what it should be.
  """
  path = root / FOLDER / f'{room}.toml'
  try:
    tables = tomllib.loads(path.read_text())
    mutations = [
      Mutation(room, **{'tests': [_own_test(table['file'])], **table})
      for table in tables.pop('mutation')
    ]
  except (OSError, KeyError, TypeError, tomllib.TOMLDecodeError) as error:
    raise ValueError(f'{path}: not a list of mutations: {error}') from error
  names = [mutation.name for mutation in mutations]
  if tables or not names or len({*names}) < len(names):
    raise ValueError(f'{path}: needs mutations of different names, no more')
  return mutations


def _own_test(file: str) -> str:
  return f'tests/{file.removesuffix(".py")}_test.py'
