"""Drift of a run's data as a program."""

import json
import os
import shutil

_CONFIG = '--config=configs/fed_soft/digits.py:smoke'


def test_the_program_prints_the_measures_and_fails_above_a_threshold(
  launcher, finished_run, tmp_path
):
  os.symlink(finished_run.folder / 'dataset', tmp_path / 'dataset')
  arguments = _CONFIG, f'--workdir={tmp_path}'
  program = launcher.run('binaries.drift', *arguments)
  assert program.returncode == 0, program.stderr
  assert not (tmp_path / 'drift.json').exists()
  assert (tmp_path / 'drift_reference').is_dir()
  parent = f'--continue_from={finished_run.folder}'
  program = launcher.run('binaries.drift', *arguments, parent)
  assert program.returncode == 0, program.stderr
  assert 'changed_clusters      0\n' in program.stdout
  assert 'clients: 24 stayed, 0 new, 0 departed' in program.stdout
  assert program.said[-1].endswith(f'Report: {tmp_path}/drift.json')
  assert (
    json.loads((tmp_path / 'drift.json').read_text())['measures'][
      'changed_clusters'
    ]
    == 0
  )
  # What retention leaves of a parent.
  for folder, name in (
    (tmp_path, 'drift_reference'),
    (finished_run.folder, 'checkpoints'),
  ):
    shutil.copytree(folder / name, tmp_path / 'old' / name)
  program = launcher.run(
    'binaries.drift',
    *(*arguments, f'--continue_from={tmp_path}/old'),
    *('--config.drift.max_label_shift=0', '--config.drift.max_far_clients=1'),
  )
  assert program.returncode == 3, program.stderr
  assert 'far_clients is unknown (the parent' in program.said[-1]
  assert 'label_shift' not in program.said[-1]
  assert 'label_shift           0  (at most 0)\n' in program.stdout
  assert not program.temporary_files() and not program.processes()
