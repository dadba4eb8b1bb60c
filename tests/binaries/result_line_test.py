import json
import pathlib

import pytest

from binaries import result_line
from pipelines import build_dataset
from tff_algos.core import errors

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


def test_result():
  assert _parse(result_line.of_result(_RESULT, '2026-11-20', 1.23456)) == {
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


def test_nothing_to_do():
  line = _parse(result_line.of_result(_RESULT._replace(reused=True), None, 0.1))
  assert (line['status'], line['as_of']) == ('unchanged', None)


@pytest.mark.parametrize(
  ('error', 'reason'),
  [
    (errors.PartitionError('two\nlines'), 'bad_input'),
    (errors.WorkdirBusyError('busy'), 'infrastructure'),
    (OSError(28, 'No space left on device', 'file'), 'infrastructure'),
  ],
)
def test_failure(error, reason):
  assert _parse(result_line.of_failure(error, 9)) == {
    'status': 'failed',
    'reason': reason,
    'exit_code': 9,
    'error': type(error).__name__,
    'message': str(error),
  }
