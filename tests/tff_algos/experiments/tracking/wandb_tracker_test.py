"""Weights & Biases' own client, offline: what it has written."""

import json
import math
import sys

import pytest

from tests.testing import tracked
from tff_algos.core import errors
from tff_algos.experiments.tracking import tracker, wandb_tracker

_CONFIG = tracker.TrackingConfig('wandb', 'lab')


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
  monkeypatch.setenv('WANDB_MODE', 'offline')


def _open(tmp_path, run_id=None):
  return wandb_tracker.WandbTracker(
    _CONFIG, {'algorithm.num_clusters': 2}, 'sweep/seed_0', run_id, tmp_path
  )


def _records(folder, run_id):
  """Returns all records of the files of a run."""
  # Not by every process that collects the tests: it takes seconds.
  import wandb
  from wandb.proto import wandb_internal_pb2
  from wandb.sdk.internal import datastore

  wandb.teardown()  # As at the end of a program: the files are whole.
  found = []
  for path in sorted(folder.glob(f'wandb/offline-run-*/run-{run_id}.wandb')):
    store = datastore.DataStore()
    store.open_for_scan(str(path))
    while (data := store.scan_data()) is not None:
      record = wandb_internal_pb2.Record()
      record.ParseFromString(data)
      found.append(record)
  return found


def _rounds(records):
  """Returns the round and the values of all records of the history."""
  return [
    {
      item.key or '.'.join(item.nested_key): json.loads(item.value_json)
      for item in record.history.item
    }
    for record in records
    if record.WhichOneof('record_type') == 'history'
  ]


@pytest.mark.verify
def test_config_rounds_summary_pictures_and_a_model(tmp_path):
  opened = _open(tmp_path)
  opened.resume(0)
  opened.record(0, {'train/loss': 2.0})
  opened.record(1, {'train/loss': 1.5, 'test/accuracy': math.nan})
  opened.summarize({'test/accuracy': 0.5})
  picture = tracked.write_picture(tmp_path)
  for _ in range(2):  # Two evaluations, and rounds after them.
    opened.add_pictures([picture])
  opened.record(2, {'train/loss': 1.0})
  opened.register(tracker.read_model(tracked.write_bundle(tmp_path)))
  opened.close(has_failed=True)
  records = _records(tmp_path, opened.run_id)
  (run,) = [record.run for record in records if record.HasField('run')]
  assert (run.project, run.display_name) == ('lab', 'sweep/seed_0')
  codes = [one.exit.exit_code for one in records if one.HasField('exit')]
  assert codes == [1]
  rounds = _rounds(records)
  losses = [(row['_step'], row['train/loss']) for row in rounds]
  assert losses == [(0, 2.0), (1, 1.5), (2, 1.0)]
  assert 'test/accuracy' not in rounds[1]
  text = ''.join(map(str, records))
  assert 'report/accuracy' in text
  pictures = [*tmp_path.glob('wandb/offline-run-*/files/media/images/**/*.png')]
  assert pictures
  assert all(one.stat().st_size for one in pictures)
  assert 'evaluation/test/accuracy' in text
  assert 'algorithm.num_clusters' in text
  (artifact,) = [
    record.artifact
    if record.HasField('artifact')
    else record.request.log_artifact.artifact
    for record in records
    if record.HasField('artifact') or record.request.HasField('log_artifact')
  ]
  assert (artifact.name, artifact.type) == ('cluster_models', 'model')
  metadata = json.loads(artifact.metadata)
  assert metadata['round_num'] == 7
  assert metadata['inputs'][1] == {
    'name': 'x',
    'dtype': 'float32',
    'shape': [-1, 8, 8],
  }


@pytest.mark.verify
def test_a_training_that_begins_anew_is_another_run(tmp_path):
  first = _open(tmp_path)
  first.record(0, {'train/loss': 1.0})
  first.close()
  second = _open(tmp_path, first.run_id)
  assert second.run_id == first.run_id
  second.resume(1)
  assert second.run_id == first.run_id
  second.resume(0)
  assert second.run_id != first.run_id
  second.record(0, {'train/loss': 3.0})
  second.close()
  (row,) = _rounds(_records(tmp_path, second.run_id))
  assert row['train/loss'] == 3.0


def test_without_wandb_the_extra_is_named(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'wandb', None)
  with pytest.raises(errors.UserError, match="the extra 'tracking'"):
    _open(tmp_path)
