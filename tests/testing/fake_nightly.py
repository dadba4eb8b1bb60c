"""A stand-in for binaries.nightly, with exit codes as planned.

`write(project)` makes a folder in which `python -m binaries.nightly` runs this
file. It needs no package, so that any Python can run it. `<workdir>/plan.json`
has date -> step -> the exit codes of one call after another; 0 is the default,
and 'no_new_data' one more. `<workdir>/calls.txt` has a line for each call.
"""

import json
import pathlib
import shutil
import sys

_REASONS = {1: 'bad raw data', 3: 'label_shift is 0.5', 75: 'disk is full'}


def write(project: pathlib.Path) -> None:
  """Makes the package `binaries` with this file as its `nightly`."""
  package = project / 'binaries'
  package.mkdir(parents=True)
  (package / '__init__.py').touch()
  shutil.copyfile(__file__, package / 'nightly.py')


def plan(workdir: pathlib.Path, codes: dict) -> None:
  """Sets the exit codes: date -> step -> those of its calls."""
  workdir.mkdir(parents=True, exist_ok=True)
  (workdir / 'plan.json').write_text(json.dumps(codes))


def calls(workdir: pathlib.Path) -> list[str]:
  """Returns date and step of each call."""
  path = workdir / 'calls.txt'
  return path.read_text().splitlines() if path.exists() else []


def _main() -> int:
  flags = dict(flag.removeprefix('--').split('=') for flag in sys.argv[1:])
  workdir = pathlib.Path(flags['workdir'])
  call = f'{flags["as_of"]} {flags["until"]}'
  before = calls(workdir).count(call)
  with (workdir / 'calls.txt').open('a') as file:
    file.write(f'{call}\n')
  codes = json.loads((workdir / 'plan.json').read_text())
  planned = codes.get(flags['as_of'], {}).get(flags['until'], [])
  code = planned[before] if before < len(planned) else 0
  if code in _REASONS:
    print(f'E1123 nightly: {_REASONS[code]}', file=sys.stderr)
    if code != 1:  # As after flags that cannot be parsed.
      print(json.dumps({'status': 'failed', 'message': _REASONS[code]}))
    return code
  print(f'I1123 nightly: {call}', file=sys.stderr)
  print(json.dumps({'status': code or 'done', 'as_of': flags['as_of']}))
  return 0


if __name__ == '__main__':
  sys.exit(_main())
