"""Export of models as a program."""

import pytest


def _export(launcher, run, *options):
  config = '--config=configs/fed_soft/digits.py:smoke'
  return launcher.run(
    'binaries.export', config, f'--workdir={run.folder}', *options
  )


@pytest.mark.verify
def test_the_program_says_where(launcher, finished_run):
  program = _export(
    launcher,
    finished_run,
    '--client_id=client_00001',
  )
  assert program.returncode == 0, program.stderr
  assert not program.complaints
  folder = f'{finished_run.folder}/export/client_client_00001'
  assert program.said[-1].endswith(f'Exported {folder}/1')
  assert not program.temporary_files() and not program.processes()


@pytest.mark.parametrize(
  ('option', 'words'),
  [
    ('--tflite_dir={}', '--tflite_dir takes none of --client_id'),
    ('--export_dir={}', '--client_id takes no --keep_versions'),
  ],
)
def test_what_is_no_release_takes_no_options_of_one(
  launcher, finished_run, tmp_path, option, words
):
  program = _export(
    launcher,
    finished_run,
    *(option.format(tmp_path), '--client_id=client_00001', '--keep_versions=2'),
  )
  assert program.returncode == 1
  (line,) = program.complaints
  assert words in line
  assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('option', 'words'),
  [
    ('--round=0', 'no checkpoint of round 0'),
    ('--keep_versions=1', 'flag --keep_versions=1'),
  ],
)
def test_nothing_is_exported_for_another_round_or_half(
  launcher, finished_run, tmp_path, option, words
):
  program = _export(
    launcher,
    finished_run,
    *('--nogate', f'--export_dir={tmp_path / "export"}', option),
  )
  assert program.returncode == 1
  assert words in program.stderr
  assert not any(tmp_path.rglob('*.pb'))


@pytest.mark.verify
def test_the_program_writes_tflite_files(launcher, finished_run, tmp_path):
  program = _export(
    launcher,
    finished_run,
    f'--tflite_dir={tmp_path}',
  )
  assert program.returncode == 0, program.stderr
  assert program.said[-1].endswith(f'Exported {tmp_path}/1')
  names = {path.name for path in (tmp_path / '1').glob('*.tflite')}
  assert len(names) == 26
  assert {'cluster_1.tflite', 'client_client_00023.tflite'} < names
  assert not program.temporary_files() and not program.processes()
