"""The whole chain, from raw data to a served prediction: its results."""

import pytest

from tests.testing import csv_files


@pytest.mark.parametrize(
  'pattern',
  [
    'dataset/CURRENT',
    'dataset/versions/*/manifest.json',
    'dataset/versions/*/card.html',
    'config.json',
    'metrics.csv',
    'tensorboard/events.out.tfevents.*',
    'checkpoints/round_000003/server_state.npz',
    'checkpoints/client_states/round_000003.npy',
    'evaluation/summary.json',
    'evaluation/clients.csv',
    'export/cluster_models/1/saved_model.pb',
    'export/personalized_models/1/saved_model.pb',
    'report/index.html',
    'report/accuracy.png',
    'report/memberships.png',
  ],
)
def test_everything_lies_where_it_is_promised(finished_run, pattern):
  found = list(finished_run.folder.glob(pattern))
  assert len(found) == 1
  assert found[0].stat().st_size > 0


def test_metrics_have_one_row_a_round(finished_run):
  rows = csv_files.read(finished_run.folder / 'metrics.csv')
  assert [row['round'] for row in rows] == ['0', '1', '2', '3']
  assert all(row['held_out/upright/cluster_0/accuracy'] for row in rows)
  assert all(float(row['train/loss']) > 0 for row in rows[1:])
