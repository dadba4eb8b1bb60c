import contextlib
import json
import shutil
from unittest import mock

import numpy as np
import pytest

from tests.testing import csv_files, tracked
from tff_algos.core import errors
from tff_algos.evaluation import round_time
from tff_algos.experiments import evaluating, tables
from tff_algos.experiments.tracking import runs as tracking
from tff_algos.reports.run import page


def _metrics(folder) -> list[dict[str, str]]:
  return csv_files.read(folder / 'metrics.csv')


def _copy(run, folder):
  """Copies a finished run without its evaluation."""
  for name in ('dataset', 'checkpoints', 'memberships'):
    shutil.copytree(run / name, folder / name)
  for name in ('metrics.csv', 'config.json'):
    shutil.copy(run / name, folder / name)
  return folder


@pytest.fixture
def folder(finished_run, tmp_path):
  return _copy(finished_run.folder, tmp_path)


@pytest.fixture(scope='module')
def evaluated(finished_run, tmp_path_factory):
  """The folder of a copy that was evaluated here."""
  folder = _copy(finished_run.folder, tmp_path_factory.mktemp('evaluated'))
  evaluating.evaluate(finished_run.config, folder)
  return folder


def test_summary_agrees_with_the_training_log(evaluated):
  folder = evaluated
  summary = json.loads((folder / 'evaluation' / 'summary.json').read_text())
  assert summary['last'].pop('round') == 3
  row = _metrics(folder)[-1]
  assert summary['last'] == {name: float(row[name]) for name in summary['last']}
  assert 'participating/test/personalized/accuracy' in summary['last']
  assert summary['majority_class']['per_client'] < 0.5
  assert summary['source_names'] == ['upright', 'rotated_90']
  assert summary['num_clusters'] == 2
  assert summary['planted_names'] == summary['source_names']
  assert sorted(summary['matched_sources']) == ['rotated_90', 'upright']
  version = (folder / 'dataset' / 'CURRENT').read_text().strip()
  assert summary['dataset_version'] == version
  assert not list(folder.rglob('*writing*'))


def test_run_that_was_killed_after_its_evaluation_gets_the_same_again(
  finished_run, evaluated
):
  """In another process, without the runtime of the training."""
  before = finished_run.folder / 'evaluation'
  names = {path.name for path in before.iterdir()}
  assert {'records.json', 'summary.json', 'clients.csv'} <= names
  for name in names:
    again = evaluated / 'evaluation' / name
    assert again.read_bytes() == (before / name).read_bytes(), name


def test_evaluation_that_is_interrupted_has_no_summary(
  finished_run, folder, monkeypatch
):
  evaluating.evaluate(finished_run.config, folder)

  def stop(*unused):
    raise KeyboardInterrupt

  monkeypatch.setattr(tables, 'write_table', stop)
  with pytest.raises(KeyboardInterrupt):
    evaluating.evaluate(finished_run.config, folder)
  assert not (folder / 'evaluation' / 'summary.json').exists()


def test_best_round_is_that_of_the_validation_examples(finished_run, folder):
  """Even where the test examples would choose another."""
  name = 'participating/{}/personalized/accuracy'
  rows = _metrics(folder)
  values = {'validation': (0.1, 0.9, 0.5, 0.8), 'test': (0.9, 0.2, 0.7, 0.8)}
  for split, accuracies in values.items():
    for row, value in zip(rows, accuracies, strict=True):
      row[name.format(split)] = value
  csv_files.write(folder / 'metrics.csv', rows)
  (records,) = folder.glob('checkpoints/round_000003/records.json')
  records.unlink()  # The table is taken as it is.
  evaluating.evaluate(finished_run.config, folder)
  summary = json.loads((folder / 'evaluation' / 'summary.json').read_text())
  best = summary['best_by_validation']
  assert best['round'] == 1
  assert best[name.format('test')] == 0.2


def test_one_row_for_every_client(evaluated):
  folder = evaluated
  rows = csv_files.read(folder / 'evaluation' / 'clients.csv')
  groups = [row['group'] for row in rows]
  assert groups == ['participating'] * 24 + ['unseen'] * 4
  for row in rows:
    assert 0 <= float(row['test_cluster_accuracy']) <= 1
    assert row['cluster_id'] in ('0', '1')
  assert all(
    0 <= float(row['train_personalized_accuracy']) <= 1 for row in rows[:24]
  )


def _rows(folder, name):
  return csv_files.read(folder / 'evaluation' / name)


def test_memberships_of_training_are_those_of_the_evaluation(evaluated):
  folder = evaluated
  names = [path.name for path in sorted((folder / 'memberships').iterdir())]
  assert names == [f'round_00000{r}.npy' for r in range(4)]
  kept = np.load(folder / 'memberships' / names[-1])
  rows = _rows(folder, 'clients.csv')[:24]
  found = [[float(row[f'membership_{s}']) for s in (0, 1)] for row in rows]
  np.testing.assert_array_equal(found, kept)
  # FedSoft's weights sum to 1, but for its smoother.
  np.testing.assert_allclose(np.sum(found, axis=1), 1, atol=2e-4)


def test_tables_by_source(evaluated):
  folder = evaluated
  centers = _rows(folder, 'centers.csv')
  last = json.loads((folder / 'evaluation' / 'summary.json').read_text())
  assert [(row['source'], row['cluster_id']) for row in centers] == [
    (source, cluster)
    for source in ('upright', 'rotated_90')
    for cluster in '01'
  ]
  for row in centers:
    name = f'held_out/{row["source"]}/cluster_{row["cluster_id"]}'
    for key in ('accuracy', 'loss'):
      assert float(row[key]) == last['last'][f'{name}/{key}']
  for row in _rows(folder, 'association.csv'):
    assert int(row['num_clients']) == 12
    counts = [int(row[f'num_main_cluster_{s}']) for s in (0, 1)]
    assert sum(counts) == 12
    means = [float(row[f'mean_membership_{s}']) for s in (0, 1)]
    assert sum(means) == pytest.approx(1, abs=2e-4)


def test_round_that_was_not_saved_is_refused(finished_run, folder):
  with pytest.raises(errors.CheckpointError, match='rounds 2, 3'):
    evaluating.evaluate(finished_run.config, folder, 1)
  assert not (folder / 'evaluation').exists()


def test_pictures_of_a_report_are_sent(finished_run, tmp_path, monkeypatch):
  def write_report(folder, clock):
    assert clock.rates == (1e6,)
    return tracked.write_picture(folder).with_name('index.html')

  found = mock.Mock()
  monkeypatch.setattr(page, 'write_report', write_report)
  monkeypatch.setattr(
    tracking, 'opened', lambda *_: contextlib.nullcontext(found)
  )
  index = evaluating.write_report(
    finished_run.config, tmp_path, round_time.read_clock(['rates=1e6'])
  )
  assert index == tmp_path / 'report' / 'index.html'
  found.add_pictures.assert_called_once_with(
    [tmp_path / 'report' / 'accuracy.png']
  )
