"""Runs a program by its name: `tff-algos train` is `python -m binaries.train`.

`tff-algos` alone lists the programs.
"""

import ast
import pathlib
import runpy
import sys


def programs() -> dict[str, str]:
  """Returns the first docstring line of each program by name."""
  found = {}
  for path in sorted(pathlib.Path(__file__).parent.glob('[a-z]*.py')):
    text = path.read_text()
    if "if __name__ == '__main__':" in text:
      docstring = ast.get_docstring(ast.parse(text)) or ''
      found[path.stem] = docstring.partition('\n')[0]
  return found


def main() -> None:
  """Runs the program named by the first argument with the other arguments."""
  known = programs()
  name, *arguments = sys.argv[1:] or ['']
  if name not in known:
    lines = [f'  {known_name:18}{line}' for known_name, line in known.items()]
    sys.exit('\n'.join(['usage: tff-algos PROGRAM [--help] ...', '', *lines]))
  sys.argv = [f'{sys.argv[0]} {name}', *arguments]
  runpy.run_module(f'binaries.{name}', run_name='__main__', alter_sys=True)


if __name__ == '__main__':
  main()
