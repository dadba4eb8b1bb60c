"""The gate, a release, a rollback and the lineage as programs."""

import shutil

import pytest

from tff_algos.core import sealed_json

_CONFIG = '--config=configs/fed_soft/digits.py:smoke'


@pytest.mark.slow
def test_gate_blesses_or_ends_with_3(launcher, finished_run, tmp_path):
  shutil.copytree(finished_run.folder, tmp_path / 'run')
  target = tmp_path / 'export'
  places = (f'--workdir={tmp_path}/run', f'--export_dir={target}')

  program = launcher.run('binaries.gate', _CONFIG, *places)
  assert program.returncode == 0, program.stderr
  assert program.stdout.startswith('round 3 without a champion: blessed\n')
  assert not program.complaints
  assert not program.temporary_files() and not program.processes()
  program = launcher.run('binaries.export', _CONFIG, *places)
  assert program.returncode == 0, program.stderr
  assert 'Released version 1' in program.said[-1]
  # The exports of another process are the same bytes.
  for model in ('cluster_models', 'personalized_models'):
    name = f'{model}/1/assets.extra/bundle.json'
    theirs = finished_run.folder / 'export' / name
    assert (target / name).read_bytes() == theirs.read_bytes()

  path = tmp_path / 'run' / 'gate.json'
  record = sealed_json.read(path, '')
  refused = {'blessed': False, 'reasons': ['overall: it fell']}
  # Compared with what is current.
  refused |= {'champion': record['candidate']}
  sealed_json.write(path, record | refused)
  program = launcher.run('binaries.gate', _CONFIG, *places)
  assert program.returncode == 3
  assert 'the gate refuses round 3: overall: it fell' in program.said[-1]
