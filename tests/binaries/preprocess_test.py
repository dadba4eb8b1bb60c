import json

import pytest

from binaries import preprocess
from configs.fed_soft import digits
from pipelines.publishing import staging
from tests.testing import raw_data
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import experiment

_DIGITS = '--config=configs/fed_soft/digits.py:smoke'


def _config(**overrides):
  config = digits.get_config('smoke')
  config.update_from_flattened_dict(overrides)
  return experiment.parse(config).dataset


def test_dataset_lies_in_the_workdir(tmp_path):
  preprocess.preprocess(raw_data.digits_config(), tmp_path)
  with dataset_lib.FederatedDataset.open(tmp_path / 'dataset') as dataset:
    assert len(dataset.client_ids) == 6
    assert dataset.source_names == ('upright', 'rotated_90')


def test_same_config_gives_the_same_bytes_and_is_not_built_again(tmp_path):
  for name in ('one', 'other'):
    preprocess.preprocess(raw_data.digits_config(), tmp_path / name)
  one, other = (
    raw_data.file_bytes(tmp_path / name) for name in ('one', 'other')
  )
  assert one == other
  before = [
    path.stat().st_mtime_ns for path in tmp_path.rglob('*.array_record')
  ]
  preprocess.preprocess(raw_data.digits_config(), tmp_path / 'one')
  assert before == [
    path.stat().st_mtime_ns for path in tmp_path.rglob('*.array_record')
  ]


def test_partition_that_cannot_be_met_leaves_the_version_before(tmp_path):
  preprocess.preprocess(_config(), tmp_path)
  before = raw_data.file_bytes(tmp_path)
  with pytest.raises(errors.PartitionError, match='Lower sizes.maximum'):
    preprocess.preprocess(_config(**{'dataset.sizes.maximum': 500}), tmp_path)
  assert raw_data.file_bytes(tmp_path) == before


def test_the_program_says_what_it_built(launcher, digits_dataset, tmp_path):
  program = launcher.run(
    'binaries.preprocess', _DIGITS, f'--workdir={tmp_path}'
  )
  assert program.returncode == 0
  assert '24 participating, 4 unseen' in program.stderr
  (line,) = program.stdout.splitlines()
  result = json.loads(line)
  assert result['status'] == 'built'
  assert result['num_clients'] == {'participating': 24, 'unseen': 4}
  version = (tmp_path / 'dataset' / 'CURRENT').read_text().strip()
  assert result['version'] == version
  (path,) = tmp_path.glob('dataset/versions/*/card.html')
  assert str(path) in program.stderr
  built = raw_data.file_bytes(digits_dataset)
  found = raw_data.file_bytes(tmp_path)
  assert {name: found[name] for name in built} == built
  assert len(found) == len(built) + 3
  assert not program.temporary_files() and not program.processes()


@pytest.mark.slow
def test_beam_options_choose_the_engine_and_not_the_bytes(
  launcher, digits_dataset, tmp_path
):
  program = launcher.run(
    'binaries.preprocess',
    _DIGITS,
    f'--workdir={tmp_path}',
    '--nocard',
    '--beam_options=--direct_num_workers=2 --direct_running_mode=multi_threading',
  )
  assert program.returncode == 0, program.stderr
  assert raw_data.file_bytes(tmp_path) == raw_data.file_bytes(digits_dataset)


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    (['--config.dataset.partition.num_clients=4000'], 'Lower sizes.maximum'),
    (['--config.dataset.splits.test_ratio=-1.0'], 'test_ratio must be'),
    (['--beam_options=--no_such_option=3'], 'no_such_option'),
    (['--as_of=yesterday'], 'as_of must be a date'),
    (['--keep_versions=0'], 'keep_versions must be an integer >= 1'),
  ],
)
def test_mistake_is_one_line_and_nothing_is_left(
  launcher, tmp_path, arguments, words
):
  program = launcher.run(
    'binaries.preprocess', _DIGITS, f'--workdir={tmp_path}', *arguments
  )
  assert program.returncode == 1, program.stderr
  (line,) = program.complaints
  assert words in line
  failure = json.loads(program.stdout)
  assert (failure['status'], failure['reason']) == ('failed', 'bad_input')
  assert words in failure['message']
  assert not [path for path in tmp_path.rglob('*') if path.is_file()]
  assert not program.temporary_files()


def test_manifest_names_version_and_checksum(digits_dataset):
  (manifest,) = digits_dataset.glob('dataset/versions/*/manifest.json')
  content = json.loads(manifest.read_text())
  current = (digits_dataset / 'dataset' / 'CURRENT').read_text().strip()
  assert content['version'] == current == manifest.parent.name


def test_scheduled_runs(launcher, tmp_path):
  """Two dates, a rerun, a rerun by force, and only one version kept."""

  def run(*arguments):
    program = launcher.run(
      'binaries.preprocess', _DIGITS, f'--workdir={tmp_path}', *arguments
    )
    assert program.returncode == 0, program.stderr
    result = json.loads(program.stdout)
    return result['status'], result['as_of'], result

  status, as_of, first = run('--as_of=2026-11-19')
  assert (status, as_of) == ('built', '2026-11-19')
  other_data = '--config.dataset.seed=7'
  status, _, second = run('--as_of=2026-11-20T00:00:00Z', other_data)
  assert (status, second['as_of']) == ('built', '2026-11-20')
  before = raw_data.file_bytes(tmp_path)
  status, _, rerun = run('--as_of=2026-11-19')
  assert (status, rerun['version']) == ('unchanged', first['version'])
  assert (rerun['is_current'], second['is_current']) == (False, True)
  status, _, forced = run('--as_of=2026-11-19', '--force')
  assert (status, forced['version']) == ('built', first['version'])
  assert raw_data.file_bytes(tmp_path) == before
  _, _, last = run('--as_of=2026-11-20', other_data, '--keep_versions=1')
  assert last['removed_versions'] == [first['version']]


def test_second_run_is_told_to_come_later(launcher, tmp_path):
  with staging.open_staging(tmp_path / 'dataset'):
    program = launcher.run(
      'binaries.preprocess', _DIGITS, f'--workdir={tmp_path}'
    )
  assert program.returncode == 75
  (line,) = program.complaints
  assert 'another run is writing to' in line
  failure = json.loads(program.stdout)
  assert failure['reason'] == 'infrastructure'
  assert failure['error'] == 'WorkdirBusyError'
  assert failure['exit_code'] == 75
