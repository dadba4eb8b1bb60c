"""The log of whole trainings: interrupted, attacked, with clients that fail."""

import pytest

from binaries import preprocess, train
from configs.cmfl import regressions
from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.experiments import auditing, experiment
from tff_algos.training import metrics_log


def make_config(**algorithm):
  values = regressions.get_config('smoke')
  values.runtime.name = 'debug'
  values.training.update({'num_rounds': 4, 'checkpoint_interval': 2})
  values.training.evaluation_interval = 4
  values.algorithm.update({'audit': 'uploads', **algorithm})
  return values


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
  folder = tmp_path_factory.mktemp('regressions')
  preprocess.preprocess(experiment.parse(make_config()).dataset, folder)
  return folder / 'dataset'


def _train(values, dataset, folder):
  folder.mkdir(exist_ok=True)
  if not (folder / 'dataset').exists():
    (folder / 'dataset').symlink_to(dataset)
  train.train(experiment.parse(values), folder)


def _files(folder):
  return {path.name: path.read_bytes() for path in (folder / 'audit').iterdir()}


def test_a_training_that_is_stopped_logs_every_round_once(
  dataset, tmp_path, monkeypatch
):
  """Stopped when round 3 is in the log and not yet in metrics.csv.

  The other log, of digests alone, has the same lines and no uploads.
  """
  whole, stopped = tmp_path / 'whole', tmp_path / 'stopped'
  _train(make_config(audit='digests'), dataset, whole)
  record = metrics_log.MetricsLog.record

  def stop(self, round_num, *rest):
    if round_num == 3:
      raise RuntimeError('killed')
    record(self, round_num, *rest)

  monkeypatch.setattr(metrics_log.MetricsLog, 'record', stop)
  with pytest.raises(RuntimeError, match='killed'):
    _train(make_config(), dataset, stopped)
  assert [one['round'] for one, _ in audit_log.read(stopped)] == [1, 2, 3]
  monkeypatch.setattr(metrics_log.MetricsLog, 'record', record)
  _train(make_config(), dataset, stopped)
  assert _files(stopped)['log.jsonl'] == _files(whole)['log.jsonl']
  assert [one['round'] for one, _ in audit_log.read(whole)] == [1, 2, 3, 4]
  assert (len(_files(whole)), len(_files(stopped))) == (1, 5)


def test_no_log_is_kept_unless_asked(tmp_path):
  config = experiment.parse(make_config(audit='none'))
  ours = object(), object()
  assert auditing.attend(config, tmp_path, *ours) == ours
