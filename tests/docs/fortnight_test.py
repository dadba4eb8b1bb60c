"""The raw data of the simulated fortnight: who is there, what goes wrong."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from configs.ifca import fortnight as fortnight_config
from docs.examples import fortnight
from tests.testing import csv_files, programs, raw_data
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import datasets, experiment


def _read(folder):
  """Returns file name -> rows."""
  found = {}
  for path in sorted(folder.iterdir()):
    found[path.name] = csv_files.read(path)
  return found


def _config(folder):
  config = fortnight_config.get_config('full')
  config.dataset.source.options.path = str(folder / '2026-*.csv')
  return experiment.parse(config).dataset


def test_clients_come_go_return_and_split():
  days = {day: fortnight.clients_of(day) for day in range(1, 15)}
  assert [len(clients) for clients in days.values()] == [
    *(30, 30, 33, 30, 33, 33, 30, 33, 33, 36, 36, 36, 36, 36)
  ]
  assert set(days[3]) - set(days[2]) == {'c0_10', 'c1_10', 'c2_10'}
  assert set(days[3]) - set(days[4]) == {'c0_00', 'c1_00', 'c2_00'}
  assert set(days[10]) - set(days[9]) == {'c0_00', 'c1_00', 'c2_00'}
  assert set(days[6]) - set(days[7]) == {'c0_01', 'c1_01', 'c2_01'}
  clusters = [
    np.bincount([*clients.values()], minlength=4).tolist()
    for clients in days.values()
  ]
  assert clusters[4] == [11, 11, 11, 0]
  assert clusters[5] == [5, 11, 11, 6]
  assert clusters[13] == [7, 12, 12, 5]
  moved = {one for one in days[5] if days[5][one] != days[6].get(one)}
  assert moved == {f'c0_{number:02d}' for number in (1, 3, 5, 7, 9, 11)}


def test_rows_lie_around_the_points_of_their_cluster():
  rows, clusters = fortnight.rows_of(6), fortnight.clients_of(6)
  found, expected = [], []
  for row in rows:
    found.append([float(row[name]) for name in fortnight.FEATURES])
    place = fortnight.CLASSES.index(row['label'])
    turn = {0: 0, 1: 120, 2: 240, 3: 60}[clusters[row['client']]]
    angle = np.deg2rad(120 * place + turn + 4 * 5)
    expected.append([2 * np.cos(angle), 2 * np.sin(angle), 0, 0])
  noise = np.array(found) - expected
  assert 33 * 10 <= len(rows) <= 33 * 16
  np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.16)
  np.testing.assert_allclose(noise.std(axis=0), 0.8, atol=0.09)
  assert all(row['time'].startswith('2026-11-06T') for row in rows)
  for client_id in clusters:
    times = [row['time'] for row in rows if row['client'] == client_id]
    assert times == sorted(set(times)) and 10 <= len(times) <= 16


def test_a_folder_has_the_latest_four_files(tmp_path):
  visible = {}
  for day in range(1, fortnight.NUM_DAYS + 1):
    fortnight.write(tmp_path, day)
    visible[day] = [int(path.stem[-2:]) for path in sorted(tmp_path.iterdir())]
  assert visible[1] == [1] and visible[3] == [1, 2, 3]
  assert visible[9] == [6, 7, 8, 9]
  assert visible[10] == visible[11] == [7, 8, 9, 10]
  assert visible[12] == [8, 9, 10, 12]
  assert visible[14] == [10, 12, 13, 14]


def test_content_is_a_function_of_day_and_seed(tmp_path):
  def digest(folder, day, seed=0):
    fortnight.write(folder, day, seed)
    content = raw_data.file_bytes(folder)
    return hashlib.sha256(repr(content).encode()).hexdigest()

  tenth = digest(tmp_path / 'a', 10)
  assert digest(tmp_path / 'a', 11) == tenth
  assert digest(tmp_path / 'a', 9) != tenth
  assert digest(tmp_path / 'b', 10) == tenth
  assert digest(tmp_path / 'a', 10) == tenth
  assert digest(tmp_path / 'b', 10, seed=1) != tenth


def test_earlier_labels_are_permuted_on_day_9_and_mended_on_day_10(tmp_path):
  truth = {day: fortnight.rows_of(day) for day in (7, 8, 9)}
  fortnight.write(tmp_path, 9)
  poisoned = _read(tmp_path)
  following = {'low': 'middle', 'middle': 'high', 'high': 'low'}
  for day in (7, 8):
    assert poisoned[f'2026-11-0{day}.csv'] == [
      row | {'label': following[row['label']]} for row in truth[day]
    ]
  assert poisoned['2026-11-09.csv'] == truth[9]
  fortnight.write(tmp_path, 10)
  mended = _read(tmp_path)
  assert [mended[f'2026-11-0{day}.csv'] for day in truth] == [*truth.values()]


def test_a_gate_sees_the_permuted_labels_in_a_split_by_time(tmp_path):
  """Trained on false labels, tested on true ones: nearest class means."""
  fortnight.write(tmp_path / 'raw', 9)
  datasets.build(_config(tmp_path / 'raw'), tmp_path)
  clusters, scores = fortnight.clients_of(9), []
  with dataset_lib.FederatedDataset.open(tmp_path / 'dataset') as dataset:
    for cluster in range(4):
      ids = [one for one in dataset.client_ids if clusters.get(one) == cluster]
      train, test = (
        [dataset.examples(one, split) for one in ids]
        for split in ('train', 'test')
      )
      x = np.concatenate([one.x for one in train])
      y = np.concatenate([one.y for one in train])
      means = np.stack([x[y == label].mean(axis=0) for label in range(3)])
      for one in test:
        nearest = np.linalg.norm(one.x[:, None] - means, axis=-1).argmin(axis=1)
        scores.append(np.mean(nearest == one.y))
  assert len(scores) == 33
  assert np.mean(scores) < 0.1


@pytest.mark.parametrize(('day', 'number'), [(11, 36), (13, 36)])
def test_the_other_days_build(tmp_path, day, number):
  fortnight.write(tmp_path / 'raw', day)
  datasets.build(_config(tmp_path / 'raw'), tmp_path)
  with dataset_lib.FederatedDataset.open(tmp_path / 'dataset') as dataset:
    assert len(dataset.client_ids) == number
    assert min(dataset.num_examples('test')) >= 1


def test_the_file_of_day_12_lacks_a_column(tmp_path):
  fortnight.write(tmp_path / 'raw', 12)
  with pytest.raises(
    errors.DataError, match=r"2026-11-12\.csv has no column 'f3'"
  ):
    datasets.build(_config(tmp_path / 'raw'), tmp_path)


def test_the_program_writes_a_day(tmp_path):
  command = [sys.executable, '-m', 'docs.examples.fortnight']
  flags = [f'--folder={tmp_path}/raw', '--day=2', '--seed=3']
  program = subprocess.run(
    [*command, *flags], cwd=programs.ROOT, capture_output=True, text=True
  )
  assert (program.returncode, program.stdout) == (0, '2026-11-02\n')
  fortnight.write(tmp_path / 'other', 2, seed=3)
  written, expected = (
    raw_data.file_bytes(tmp_path / name) for name in ('raw', 'other')
  )
  assert written == expected
