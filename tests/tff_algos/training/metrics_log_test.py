import math

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing import event_accumulator

from tests.testing import csv_files, full_disk, power_loss
from tff_algos.core import durable, errors, records
from tff_algos.training import metrics_log

_METRIC = 'participating/validation/personalized/accuracy'


def _log(folder, **options):
  return metrics_log.MetricsLog(
    folder, 10, {_METRIC: 'accuracy'}, shows_progress=False, **options
  )


def _write(folder, rows, resume_at=0):
  with _log(folder) as log:
    log.resume(resume_at, {})
    for round_num, metrics in rows:
      log.record(round_num, metrics)


def _read(folder) -> list[dict[str, str]]:
  return csv_files.read(folder / 'metrics.csv')


def test_one_row_a_round_and_empty_cells_where_nothing_was_measured(tmp_path):
  _write(
    tmp_path,
    [(0, {'a': 0.1}), (1, {'b': 2, 'a': 1 / 3}), (2, {'b': math.nan})],
  )
  assert _read(tmp_path) == [
    {'round': '0', 'a': '0.1', 'b': ''},
    {'round': '1', 'a': repr(1 / 3), 'b': '2'},
    {'round': '2', 'a': '', 'b': 'nan'},
  ]


def test_resume_cuts_off_what_will_be_run_again(tmp_path):
  first = [(r, {'a': r / 10}) for r in range(5)]
  _write(tmp_path, first)
  _write(tmp_path, [(3, {'a': 33.0, 'b': 1.0})], resume_at=2)
  assert _read(tmp_path) == [
    {'round': '0', 'a': '0.0', 'b': ''},
    {'round': '1', 'a': '0.1', 'b': ''},
    {'round': '2', 'a': '0.2', 'b': ''},
    {'round': '3', 'a': '33.0', 'b': '1.0'},
  ]


def test_start_from_round_0_forgets_an_older_log(tmp_path):
  _write(tmp_path, [(0, {'old': 1.0}), (1, {'old': 1.0})])
  _write(tmp_path, [(0, {'a': 2.0})])
  assert _read(tmp_path) == [{'round': '0', 'a': '2.0'}]


def test_tensorboard_forgets_an_older_log_but_not_the_rounds_before(tmp_path):
  folder = tmp_path / 'tensorboard'
  _write(tmp_path, [(0, {'a': 0.0})])
  (folder / 'notes.txt').write_text('mine')
  old = {*folder.glob('events.*')}
  _write(tmp_path, [(0, {'a': 1.0})])
  new = {*folder.glob('events.*')}
  assert len(new) == 1 and not new & old
  _write(tmp_path, [(2, {'a': 2.0})], resume_at=1)
  assert len({*folder.glob('events.*')}) == 2
  assert (folder / 'notes.txt').exists()


@pytest.mark.parametrize('rest', ['1', '12,', '12,0.5\r\n13,0'])
def test_half_a_row_of_a_killed_process_is_cut_off(tmp_path, rest):
  _write(tmp_path, [(r, {'a': r / 10}) for r in range(12)])
  with open(tmp_path / 'metrics.csv', 'a') as file:
    file.write(rest)
  _write(tmp_path, [], resume_at=11)
  assert [row['round'] for row in _read(tmp_path)] == [
    str(r) for r in range(12)
  ]


def test_interrupted_log_equals_a_whole_one(tmp_path):
  rows = [(r, {'a': r / 7} | ({'b': r / 3} if r % 2 else {})) for r in range(6)]
  for name in ('whole', 'parts'):
    (tmp_path / name).mkdir()
  _write(tmp_path / 'whole', rows)
  _write(tmp_path / 'parts', rows[:4])
  _write(tmp_path / 'parts', rows[3:], resume_at=2)
  whole, parts = (
    (tmp_path / name / 'metrics.csv').read_bytes()
    for name in ('whole', 'parts')
  )
  assert whole == parts


def test_memberships_are_cut_off_with_the_rows(tmp_path):
  with _log(tmp_path) as log:
    log.resume(0, {})
    for round_num in range(4):
      evaluated = round_num % 2 == 0
      memberships = np.full([3, 2], round_num) if evaluated else None
      log.record(round_num, {'a': 1.0}, memberships)
    names = [path.name for path in sorted((tmp_path / 'memberships').iterdir())]
    assert names == ['round_000000.npy', 'round_000002.npy']
    log.resume(1, {})
    assert [row['round'] for row in _read(tmp_path)] == ['0', '1']
    (left,) = (tmp_path / 'memberships').iterdir()
    assert np.load(left).dtype == np.float32
    assert left.name == 'round_000000.npy'


def test_rows_before_a_checkpoint_outlast_a_power_loss(tmp_path):
  workdir = tmp_path / 'run'
  workdir.mkdir()

  def train():
    log.resume(0, {})
    for round_num in range(4):
      log.record(round_num, {'a': round_num / 10}, np.full([3, 2], round_num))
      if round_num == 2:
        log.persist()
        with durable.replacing(workdir / 'checkpoint') as file:
          file.write('2')

  def recover(place, is_finished):
    has_checkpoint = (place / 'checkpoint').exists()
    assert has_checkpoint or not is_finished
    rounds = [0, 1, 2] if has_checkpoint else []
    _write(place, [], resume_at=max(rounds, default=0))
    assert [row['a'] for row in _read(place)] == [f'{r / 10}' for r in rounds]
    paths = sorted((place / 'memberships').glob('*'))
    assert [np.load(path)[0, 0] for path in paths] == rounds

  with _log(workdir) as log:
    power_loss.check(workdir, train, recover)


def test_tensorboard_gets_the_same_numbers_without_nan(tmp_path):
  _write(tmp_path, [(0, {'a': 0.5, 'b': math.nan}), (1, {'a': 0.25, 'b': 4.0})])
  events = event_accumulator.EventAccumulator(
    str(tmp_path / 'tensorboard'),
    size_guidance={event_accumulator.TENSORS: 0},
  ).Reload()
  found = {
    tag: [
      (
        event.step,
        float(tf.make_ndarray(event.tensor_proto)),
      )
      for event in events.Tensors(tag)
    ]
    for tag in events.Tags()['tensors']
  }
  assert found == {'a': [(0, 0.5), (1, 0.25)], 'b': [(1, 4.0)]}


def test_progress_bar_shows_round_accuracy_and_time_left(tmp_path, capsys):
  log = metrics_log.MetricsLog(tmp_path, 4, {_METRIC: 'accuracy', 'x': 'loss'})
  with log:
    log.resume(0, {})
    log.record(0, {_METRIC: 0.25})
    log.record(1, {_METRIC: 0.75, 'x': 2.0})
    log.record(4, {})
  shown = capsys.readouterr().err
  assert '4/4' in shown
  assert 'accuracy=0.750, loss=2.000' in shown
  assert '<' in shown  # tqdm's [elapsed<left].


@pytest.mark.parametrize(
  ('limit', 'refused'), [(12, 'metrics.csv: File too'), (100, 'tensorboard: ')]
)
def test_disk_that_refuses_is_one_clear_error(tmp_path, limit, refused):
  """TensorBoard's file is larger than the table."""
  with _log(tmp_path) as log:
    log.resume(0, {})
    log.record(0, {'a': 1.0})
    with full_disk.after(limit):
      for name in ('a', 'b'):  # Appending, and widening the table.
        with pytest.raises(
          errors.InfrastructureError, match=f'cannot write .*{refused}'
        ):
          log.record(1, {name: 1 / 3})
  assert not list(tmp_path.glob('*.writing'))
  _write(tmp_path, [(1, {'a': 2.0})], resume_at=0)


@pytest.mark.parametrize(
  ('name', 'expected'), [('accuracy', (2, 0.95)), ('mse', (3, 0.2))]
)
def test_best_round_is_the_earliest_of_the_best(tmp_path, name, expected):
  metric = f'participating/validation/personalized/{name}'
  rows = [(0, 0.9), (1, math.nan), (2, 0.95), (3, 0.2), (4, 0.95), (5, 0.2)]
  num_nan = {6: 2.0}  # Not of all clients.
  _write(
    tmp_path,
    [
      (
        r,
        {
          **{metric: value, f'{metric}_num_nan': num_nan.get(r, 0.0)},
          **{'x': r / 2, 'seconds': 0.1},
        },
      )
      for r, value in [*rows, (6, 0.99 if name == 'accuracy' else 0.1)]
    ],
  )
  best = metrics_log.best_round(tmp_path, metric, {}, 6)
  assert best.pop(f'{metric}_num_nan') == 0
  round_num, value = expected
  assert best == {'round': round_num, metric: value, 'x': round_num / 2}


def test_rows_after_the_checkpoint_do_not_count(tmp_path):
  """A killed training leaves rows of rounds that it runs again."""
  with _log(tmp_path) as log:
    log.resume(0, {})
    for round_num, value in enumerate((0.5, 0.7, 0.6)):
      log.record(round_num, {_METRIC: value})
    entries = log.persist()
    log.record(3, {_METRIC: 0.9, 'later': 1.0})
  best = metrics_log.best_round(tmp_path, _METRIC, entries, 2)
  assert best['round'] == 1
  # A run that has just been continued has no records yet.
  best = metrics_log.best_round(tmp_path, _METRIC, {}, 2)
  assert best['round'] == 1
  best = metrics_log.best_round(tmp_path, _METRIC, {}, 3)
  assert best['round'] == 3


def test_resumed_log_is_that_of_the_checkpoint(tmp_path):
  """Without the rows, columns and memberships since."""
  with _log(tmp_path) as log:
    log.resume(0, {})
    for round_num in range(3):
      log.record(round_num, {'a': round_num / 3}, np.full([3, 2], round_num))
    entries = log.persist()
    content = (tmp_path / 'metrics.csv').read_bytes()
    log.record(3, {'a': 0.5, 'b': 0.5}, np.zeros([3, 2]))
    with open(tmp_path / 'metrics.csv', 'a') as file:
      file.write('4,0.2')
  assert records.first_problem(tmp_path, entries) is None
  with _log(tmp_path) as log:
    log.resume(2, entries)
    assert (tmp_path / 'metrics.csv').read_bytes() == content
    assert log.persist() == entries


def test_best_round_of_a_damaged_table_is_an_error(tmp_path):
  assert not metrics_log.best_round(tmp_path, _METRIC, {}, 3)
  _write(tmp_path, [(0, {_METRIC: 0.5})])
  path = tmp_path / 'metrics.csv'
  path.write_text(path.read_text().replace('0.5', '0.o'))
  with pytest.raises(errors.DataError, match=f'{path} cannot be read'):
    metrics_log.best_round(tmp_path, _METRIC, {}, 3)


def test_best_round_without_validation_examples_is_empty(tmp_path):
  _write(tmp_path, [(0, {_METRIC: math.nan, 'x': 1.0}), (1, {'x': 1.0})])
  for metric in (_METRIC, 'unknown'):
    assert not metrics_log.best_round(tmp_path, metric, {}, 6)
