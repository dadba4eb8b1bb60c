"""Building datasets as a program, and the line that schedulers read."""

import json
import os
import pathlib
import shutil

import pytest

from binaries import command, preprocess
from pipelines import build_dataset
from tests.testing import raw_data, s3_server
from tff_algos.core import cache_folder, errors
from tff_algos.stores import mirror

_DIGITS = '--config=configs/fed_soft/digits.py:smoke'
_RESULT = build_dataset.BuildResult(
  path=pathlib.Path('/data/set'),
  version='0123456789abcdef',
  manifest={
    'num_clients': {'participating': 3, 'unseen': 1},
    'num_examples': {
      'train': {'participating': 30, 'unseen': 10},
      'test': {'participating': 0, 'unseen': 2},
    },
    'counters': {'raw_examples': 50, 'dead_letters': 4},
  },
  reused=False,
  is_current=False,
  removed=('a' * 16,),
)


def _parse(line):
  assert '\n' not in line
  return json.loads(line)


def test_line_of_a_result():
  assert _parse(preprocess.result_line(_RESULT, '2026-11-20', 1.23456)) == {
    'status': 'built',
    'version': '0123456789abcdef',
    'path': '/data/set',
    'as_of': '2026-11-20',
    'is_current': False,
    'num_clients': {'participating': 3, 'unseen': 1},
    'num_examples': {'train': 40, 'test': 2},
    'raw_examples': 50,
    'dead_letters': 4,
    'removed_versions': ['a' * 16],
    'seconds': 1.235,
  }


def test_line_if_there_is_nothing_to_do():
  line = _parse(
    preprocess.result_line(_RESULT._replace(reused=True), None, 0.1)
  )
  assert (line['status'], line['as_of']) == ('unchanged', None)


@pytest.mark.parametrize(
  ('error', 'reason'),
  [
    (errors.PartitionError('two\nlines'), 'bad_input'),
    (errors.WorkdirBusyError('busy'), 'infrastructure'),
    (errors.NotApprovedError('worse'), 'not_approved'),
    (errors.RuntimeFailureError('a stage failed'), 'bad_input'),
    (errors.LostProcessError('killed'), 'infrastructure'),
    (errors.InfrastructureError('no engine'), 'infrastructure'),
    (OSError(28, 'No space left on device', 'file'), 'infrastructure'),
  ],
)
def test_line_of_a_failure(error, reason):
  code = command.exit_code_of(error)
  assert _parse(command.failure_line(error, code)) == {
    'status': 'failed',
    'reason': reason,
    'exit_code': {'bad_input': 1, 'not_approved': 3}.get(reason, 75),
    'error': type(error).__name__,
    'message': str(error),
  }


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


def test_a_card_that_cannot_be_written_fails_no_build(
  launcher, digits_dataset, tmp_path
):
  shutil.copytree(digits_dataset, tmp_path, dirs_exist_ok=True)
  (version,) = tmp_path.glob('dataset/versions/*')
  (version / 'card.html').mkdir()
  program = launcher.run(
    'binaries.preprocess', _DIGITS, f'--workdir={tmp_path}'
  )
  assert program.returncode == 0, program.stderr
  assert json.loads(program.stdout)['status'] == 'unchanged'
  assert 'No card: ' in program.stderr


def test_a_version_that_is_not_published_is_not_told(
  launcher, s3, tmp_path, monkeypatch
):
  def fault(method, path):
    is_refused = method == 'PUT' and '/objects/' in path
    return 'forbidden' if is_refused else None

  monkeypatch.setattr(s3, 'fault', fault)
  program = launcher.run(
    'binaries.preprocess',
    *(_DIGITS, f'--workdir=s3://{s3_server.BUCKET}/refused', '--nocard'),
    **{**os.environ, cache_folder.VARIABLE: str(tmp_path)},
  )
  assert program.returncode == 75, program.stderr
  assert json.loads(program.stdout)['status'] == 'failed'


def test_a_workdir_of_an_object_store_in_use_is_tried_later(
  launcher, s3, tmp_path, monkeypatch
):
  address = f's3://{s3_server.BUCKET}/in_use'
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'a'))
  with mirror.Mirror(address).writing():
    program = launcher.run(
      'binaries.preprocess',
      *(_DIGITS, f'--workdir={address}'),
      **{**os.environ, cache_folder.VARIABLE: str(tmp_path / 'b')},
    )
  assert program.returncode == 75, program.stderr
  failure = _parse(program.stdout.strip())
  assert failure['error'] == 'WorkdirBusyError'
  assert (failure['reason'], failure['exit_code']) == ('infrastructure', 75)


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


def test_scheduled_runs(launcher, digits_dataset, tmp_path):
  """A rebuild by force, and a later date that keeps one version alone."""
  shutil.copytree(digits_dataset, tmp_path, dirs_exist_ok=True)
  before = raw_data.file_bytes(tmp_path)
  first = (tmp_path / 'dataset' / 'CURRENT').read_text().strip()

  def run(*arguments):
    program = launcher.run(
      'binaries.preprocess',
      *(_DIGITS, f'--workdir={tmp_path}', '--nocard'),
      *arguments,
    )
    assert program.returncode == 0, program.stderr
    return json.loads(program.stdout)

  forced = run('--as_of=2026-11-19', '--force')
  assert (forced['status'], forced['version']) == ('built', first)
  assert forced['as_of'] == '2026-11-19'
  found = raw_data.file_bytes(tmp_path)
  assert {name: found[name] for name in before} == before
  assert {*found} - {*before} == {'dataset/as_of/2026-11-19'}
  other_data = '--config.dataset.seed=7'
  last = run('--as_of=2026-11-20T00:00:00Z', other_data, '--keep_versions=1')
  assert (last['status'], last['as_of']) == ('built', '2026-11-20')
  assert last['is_current'] and last['removed_versions'] == [first]
