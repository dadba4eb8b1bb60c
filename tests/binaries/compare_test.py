"""Comparisons as a program."""

import json

from tests.testing import fake_sweep


def test_a_mistake_in_an_option_leaves_nothing(launcher, tmp_path):
  fake_sweep.write_run(tmp_path / 'run')
  program = launcher.run(
    'binaries.compare',
    f'--workdir={tmp_path}/compared',
    f'--runs={tmp_path}/run',
    '--target=nonsense',
  )
  assert program.returncode == 1
  assert "--target='nonsense' must be METRIC=VALUE" in program.said[-1]
  assert not (tmp_path / 'compared').exists()


def test_runs_made_one_by_one_are_compared(launcher, tmp_path):
  for name in ('fed_soft/seed_0', 'fed_soft/seed_1', 'ifca'):
    fake_sweep.write_run(tmp_path / name)
  workdir = tmp_path / 'compared'
  program = launcher.run(
    'binaries.compare',
    f'--workdir={workdir}',
    f'--runs={tmp_path}/fed_soft/seed_*,{tmp_path}/ifca',
    '--metrics=participating/test/',
  )
  assert program.returncode == 0, program.stderr
  assert 'fed_soft  (2 seeds' in program.stdout
  assert 'ifca  (1 seed' in program.stdout
  assert 'participating/test/personalized/accuracy' in program.stdout
  assert 'held_out/' not in program.stdout
  plan = json.loads((workdir / 'sweep.json').read_text())
  assert len(plan['runs']) == 3
  assert program.said[-1].endswith(f'Report: {workdir}/report/index.html')
  assert not program.temporary_files() and not program.processes()
