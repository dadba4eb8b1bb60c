"""The commands and flags in the document are real ones."""

import re
import shlex

import pytest

from pipelines.engines import runner
from tests.testing import programs

_TEXT = (programs.ROOT / 'docs' / 'data_engineering.md').read_text()
_COMMANDS = [
  command.replace('\\\n', ' ')
  for command in re.findall(
    r'-m binaries\.preprocess(?:[^\n`]|\\\n)*', _TEXT.replace('\n  ', ' ')
  )
]
_ENGINES = re.findall(r'^\| `(--(?:runner|direct)[^`]*)` \|', _TEXT, re.M)


def test_flags_of_commands_are_flags_of_the_program(launcher):
  known = launcher.run('binaries.preprocess', '--help').stdout
  used = set(re.findall(r' --(\w+)', ' '.join(_COMMANDS)))
  used |= set(re.findall(r'`--(as_of|force|keep_versions|\w+_versions)', _TEXT))
  assert {'config', 'workdir', 'as_of', 'keep_versions', 'force'} <= used
  used -= {'direct_running_mode'}  # Beam's, within --beam_options.
  for flag in used:
    assert re.search(rf'--(\[no\])?{flag}:', known), flag


def test_line_for_cron_runs(launcher, tmp_path):
  (line,) = [command for command in _COMMANDS if 'date -u' in command]
  # cron takes a bare % for a line break.
  line = line.partition(' >>')[0].replace(r'$(date -u +\%F)', '2026-11-20')
  assert '%' not in line
  module, *flags = shlex.split(line)[1:]
  flags.append(f'--workdir={tmp_path}')
  program = launcher.run(module, *flags)
  assert program.returncode == 0, program.stderr
  assert (tmp_path / 'dataset' / 'as_of' / '2026-11-20').exists()


@pytest.mark.parametrize('flags', _ENGINES)
def test_flags_of_engines_are_taken_by_beam(flags):
  words = [
    word if word.startswith('--environment_config=') else word.replace('"', '')
    for word in flags.split()
  ]
  pipeline = runner._create_pipeline(words)
  expected = flags.partition('Runner')[0].rpartition('=')[2] or 'FnApi'
  if flags.startswith('--direct'):
    expected = 'FnApi'
  assert type(pipeline.runner).__name__ == f'{expected}Runner'


def test_all_engines_are_there():
  assert len(_ENGINES) == 7
