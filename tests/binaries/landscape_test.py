"""Paths on a plane through the loss, as a program."""

import pytest


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ([], 'runs'),
    (['--runs='], '--runs names no run'),
    (['--runs=/missing'], '/missing/config.json is missing'),
  ],
)
def test_mistake_is_one_line_and_nothing_is_written(
  launcher, tmp_path, arguments, words
):
  workdir = tmp_path / 'landscape'
  program = launcher.run(
    'binaries.landscape', f'--workdir={workdir}', *arguments
  )
  assert program.returncode == 1
  (line,) = program.complaints
  assert words in line
  assert not workdir.exists()
