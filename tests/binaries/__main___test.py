import sys

import pytest

from binaries import __main__ as tff_algos_program


def test_every_program_is_listed_and_no_other_module():
  found = tff_algos_program.programs()
  assert {'train', 'doctor', 'serve', 'run'} <= set(found)
  assert not {'command', 'comparison', '__main__', '__init__'} & set(found)
  assert found['train'].startswith('Trains an experiment')


@pytest.mark.parametrize('arguments', [[], ['trian'], ['command']])
def test_what_is_no_program_gets_the_list(monkeypatch, arguments):
  monkeypatch.setattr(sys, 'argv', ['tff-algos', *arguments])
  with pytest.raises(
    SystemExit, match=r'usage: tff-algos PROGRAM[^$]*\n  train'
  ):
    tff_algos_program.main()


def test_the_program_runs_with_its_arguments(launcher, tmp_path):
  missing = tmp_path / 'nothing'
  program = launcher.run('binaries', 'compare', f'--no_such_flag={missing}')
  assert program.returncode == 1
  assert "Unknown command line flag 'no_such_flag'" in program.stderr
