"""The commands and flags in the document are real ones."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from pipelines.engines import runner
from tests.testing import ports, programs

_TEXT = (programs.ROOT / 'docs' / 'data_engineering.md').read_text()
_ENGINES = re.findall(r'^\| `(--(?:runner|direct)[^`]*)` \|', _TEXT, re.M)


def test_flags_in_the_text_are_flags_of_the_program(launcher):
  """Those of whole commands: `tests/binaries/command_test.py`."""
  known = launcher.run('binaries.preprocess', '--help').stdout
  for flag in ('as_of', 'force', 'keep_versions', 'nocard'):
    assert f'`--{flag}' in _TEXT
    assert re.search(rf'--(\[no\])?{flag.removeprefix("no")}:', known), flag


@pytest.fixture(name='shell')
def _shell(tmp_path):
  """Starts printed lines in the checkout; ends what still runs."""
  path = f'{os.path.dirname(sys.executable)}{os.pathsep}{os.environ["PATH"]}'
  environment = {**os.environ, 'PATH': path, 'TMPDIR': str(tmp_path)}
  environment.pop('PYTHONPATH', None)
  started = []

  def start(line):
    line = re.sub(r'runs/\w+', str(tmp_path / 'run'), line.rstrip(' &'))
    with open(tmp_path / f'stderr_{len(started)}', 'w') as stderr:
      process = subprocess.Popen(
        shlex.split(line),
        cwd=programs.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
      )
    started.append(process)
    return process

  yield start
  for process in reversed(started):
    process.terminate()
    process.communicate(timeout=60)


def _fenced(start):
  """Returns the lines of the block that starts so."""
  (block,) = re.findall(
    rf'^```\n({re.escape(start)}.*?)^```', _TEXT, re.M | re.S
  )
  return block.replace('\\\n', ' ').splitlines()


@pytest.mark.verify
def test_dask_cluster_builds_as_printed(shell, tmp_path):
  lines = _fenced('dask scheduler')
  assert len(lines) == 3
  (address,) = ports.free_addresses(1)
  host, port = address.split(':')
  for line in lines:
    line = line.replace('10.0.0.5:8786', address)
    line = line.replace(
      '--host=10.0.0.5 --port=8786', f'--host={host} --port={port}'
    )
    last = shell(line)
  out, _ = last.communicate(timeout=300)
  said = '\n'.join(path.read_text() for path in tmp_path.glob('stderr_*'))
  assert last.returncode == 0, said
  assert json.loads(out)['status'] == 'built'
  assert 'No module named' not in said


@pytest.mark.verify
def test_first_command_builds_as_printed(shell):
  start = 'python -m binaries.preprocess'
  config = '--config=configs/fed_soft/digits.py'
  (line,) = _fenced(f'{start} {config} \\\n  --workdir=runs/digits')
  program = shell(line)
  out, _ = program.communicate(timeout=300)
  assert program.returncode == 0
  assert json.loads(out)['status'] == 'built'


@pytest.mark.parametrize('flags', _ENGINES)
def test_flags_of_engines_are_taken_by_beam(flags):
  pipeline = runner._create_pipeline(runner.split_flags(flags))
  expected = flags.partition('Runner')[0].rpartition('=')[2] or 'FnApi'
  if flags.startswith('--direct'):
    expected = 'FnApi'
  assert type(pipeline.runner).__name__ == f'{expected}Runner'


def test_all_engines_are_there():
  assert len(_ENGINES) == 7
