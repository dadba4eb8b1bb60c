"""The mutation runner, on a project of one file and hardly any tests."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from tests.testing import patience, programs

_CODE = 'LIMIT = 3\nNAME = "x"\n\ndef count():\n  return LIMIT\n'
_TESTS = """
import pathlib
import subprocess
import sys
import tempfile

import code_under_test as code

def test_count():
  tempfile.mkdtemp()
  if code.NAME == 'hangs':
    # An orphan in a session of its own.
    subprocess.run(['setsid', 'sh', '-c', 'sleep 1000 &'])
    while True:
      pathlib.Path(sys.modules['code_under_test'].__file__)
  if code.NAME == 'exits':
    import os
    os._exit(4)
  assert code.count() == 3

def test_module_is_a_copy():
  assert 'project' not in code.__file__.split('/')
"""


def _mutation(name: str, old: str, new: str) -> str:
  entries = {'name': name, 'file': 'code_under_test.py', 'old': old, 'new': new}
  lines = [f'{key} = {json.dumps(value)}' for key, value in entries.items()]
  return '\n'.join(['[[mutation]]', *lines, 'tests = ["code_test.py"]\n'])


_KILLED = _mutation('limit too low', 'LIMIT = 3', 'LIMIT = 2')
_SURVIVOR = _mutation('limit not used', 'return LIMIT', 'return 3')
_EXITING = _mutation('exits', '"x"', '"exits"')
_HANGING = _mutation('hangs', '"x"', '"hangs"')


class _Project:
  """A project in a folder, with the lists that a test gives it."""

  def __init__(self, folder: pathlib.Path):
    self.root = folder / 'project'
    self.temporary = folder / 'tmp'
    self.temporary.mkdir()
    (self.root / 'tests/mutations').mkdir(parents=True)
    (self.root / 'code_under_test.py').write_text(_CODE)
    # Then pytest adds nothing to the module search path.
    options = '[pytest]\naddopts = --import-mode=importlib\n'
    (self.root / 'pytest.ini').write_text(options)
    (self.root / 'code_test.py').write_text(_TESTS)
    subprocess.run(['git', 'init', '-q'], cwd=self.root, check=True)

  def start(self, patience: int = 1, **by_room: str) -> subprocess.Popen:
    for room, text in by_room.items():
      (self.root / f'tests/mutations/{room}.toml').write_text(text)
    command = [sys.executable, '-m', 'tests.mutations', '--preload', 'pytest']
    options = ['--root', self.root, '--jobs', '2']
    return subprocess.Popen(
      [*command, *options, '--patience', str(patience)],
      cwd=programs.ROOT,
      env={
        **os.environ,
        'TMPDIR': str(self.temporary),
        # They take longer to import than all that is run here.
        'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1',
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  def run(self, **by_room: str) -> tuple[int, str]:
    """Returns the exit status and what the runner said."""
    process = self.start(**by_room)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output

  def processes(self) -> list[str]:
    """Returns the commands of processes that have its temporary folder."""
    commands = []
    for process in psutil.process_iter():
      with contextlib.suppress(psutil.Error):
        folder = process.environ().get('TMPDIR', '')
        if folder.startswith(str(self.temporary)):
          commands.append(' '.join(process.cmdline()))
    return commands


@pytest.fixture
def project(tmp_path):
  made = _Project(tmp_path)
  yield made
  assert made.processes() == []
  assert os.listdir(made.temporary) == []
  assert (made.root / 'code_under_test.py').read_text() == _CODE


def test_table_counts_killed(project):
  _, output = project.run(good=_KILLED + _HANGING, poor=_KILLED + _SURVIVOR)
  assert 'good: hangs: killed by the time limit' in output
  rows = [line.split()[:-1] for line in output.splitlines()]
  assert ['good', '2', '2', '100%'] in rows
  assert ['poor', '2', '1', '50%'] in rows


def test_all_killed_is_success(project):
  status, output = project.run(good=_KILLED)
  assert status == 0, output


@pytest.mark.parametrize(
  ('text', 'complaint'),
  [
    (_SURVIVOR, 'survived: room: limit not used (code_under_test.py)'),
    (_EXITING, 'broken: room: exits (code_under_test.py)\npytest exits with 4'),
  ],
  ids=['survivor', 'broken'],
)
def test_one_fault_is_failure(project, text, complaint):
  status, output = project.run(room=text)
  assert (status, complaint in output) == (1, True), output


def test_mutation_that_does_not_apply_is_an_error(project):
  status, output = project.run(room=_mutation('gone', 'LIMIT = 4', ''))
  complaint = 'error: room: gone: `old` occurs 0 times'
  assert (status, complaint in output) == (1, True), output


def test_tests_that_fail_unmutated_are_an_error(project):
  with open(project.root / 'code_test.py', 'a') as file:
    file.write('\ndef test_never(): assert False\n')
  status, output = project.run(room=_KILLED)
  assert (status, 'error: room: fails unmutated' in output) == (1, True), output
  assert 'score' not in output


@pytest.mark.parametrize(
  ('signum', 'status'),
  [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)],
)
def test_interrupted_run_leaves_nothing(project, signum, status):
  hanging_tests = _TESTS.replace("== 'hangs'", "== 'x'")
  (project.root / 'code_test.py').write_text(hanging_tests)
  process = project.start(patience=60, room=_KILLED)
  patience.until(
    lambda: any('sleep' in one for one in project.processes()), alive=[process]
  )
  process.send_signal(signum)
  process.communicate(timeout=60)
  assert process.returncode == status
  if signum == signal.SIGKILL:  # Its files stay, but no process does.
    patience.until(lambda: not project.processes())
    for folder in project.temporary.iterdir():
      shutil.rmtree(folder)
