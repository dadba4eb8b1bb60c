"""The tracker's run of a workdir: on, off, gone on with, its content."""

import dataclasses

import pytest

from configs.fed_soft import synthetic
from tests.testing import tracked
from tff_algos.core import errors, sealed_json
from tff_algos.experiments import datasets, evaluating, experiment, training
from tff_algos.experiments.tracking import mlflow_tracker, runs, tracker


class _Tracker:
  """Remembers all calls, of all objects."""

  calls = []

  def __init__(self, config, options, name, run_id):
    self.run_id = run_id or 'first'
    self.calls.append(('open', config.experiment, options, name, run_id))

  def __getattr__(self, name):
    return lambda *values, **named: self.calls.append(
      (name, *values, *named.values())
    )


@pytest.fixture
def calls(monkeypatch):
  monkeypatch.setattr(mlflow_tracker, 'MlflowTracker', _Tracker)
  monkeypatch.setattr(_Tracker, 'calls', [])
  return _Tracker.calls


def _config(name='mlflow'):
  config = synthetic.get_config('smoke')
  config.runtime.name = 'debug'
  config.training.num_rounds = 2
  config.algorithm.local_training.num_local_epochs = 1
  config.dataset.partition.num_clients = 4
  config.algorithm.cohort_size_per_cluster = 2
  config.tracking.name = name
  return experiment.parse(config)


def test_off_opens_nothing_and_writes_nothing(tmp_path, calls):
  with runs.opened(_config(''), tmp_path) as found:
    assert found is None
  runs.register(_config(''), tmp_path, [tmp_path / 'no'])
  assert not calls
  assert not [*tmp_path.iterdir()]


def test_programs_of_a_workdir_share_a_run(tmp_path, calls):
  folder = tmp_path / 'sweep' / 'seed_0'
  folder.mkdir(parents=True)
  with runs.opened(_config(), folder) as found:
    assert found is not None
    found.add_pictures([tracked.write_picture(folder)])
  runs.register(_config(), folder, [tracked.write_bundle(folder)])
  names = [call[0] for call in calls]
  assert names == ['open', 'add_pictures', 'close', 'open', 'register', 'close']
  assert calls[0][3:] == ('sweep/seed_0', None)
  assert calls[0][2]['algorithm.num_clusters'] == 2
  assert calls[3][4] == 'first'
  assert calls[2] == calls[5] == ('close',)
  assert calls[1][1] == [folder / 'report' / 'accuracy.png']
  assert calls[4][1].name == 'cluster_models'
  ids = sealed_json.read(folder / 'tracking.json', '')
  assert ids == {'mlflow': 'first'}


@pytest.mark.slow
def test_a_training_and_its_evaluation_are_sent(tmp_path, calls):
  config = _config()
  datasets.build(config.dataset, tmp_path)
  training.train(config, tmp_path, shows_progress=False)
  evaluating.evaluate(config, tmp_path)
  assert [call[0] for call in calls if call[0] != 'persist'] == [
    *('open', 'resume', 'record', 'record', 'record', 'close'),
    *('open', 'summarize', 'close'),
  ]
  rounds = [call[1:] for call in calls if call[0] == 'record']
  assert [round_num for round_num, *_ in rounds] == [0, 1, 2]
  (last,) = [call[1] for call in calls if call[0] == 'summarize']
  name = 'participating/validation/personalized/mse'
  assert rounds[-1][1][name] == last[name]
  # Nothing of it affects what is written.
  off = dataclasses.replace(config, tracking=tracker.TrackingConfig())
  num_calls = len(calls)
  assert training.train(off, tmp_path, shows_progress=False) == 2
  assert len(calls) == num_calls


def test_an_error_of_the_tracker_keeps_its_run(tmp_path, calls):
  with (
    pytest.raises(errors.InfrastructureError),
    runs.opened(_config(), tmp_path),
  ):
    raise errors.InfrastructureError('away')
  assert calls[-1] == ('close', True)
  assert (tmp_path / 'tracking.json').is_file()


def test_an_error_of_the_tracker_hides_no_other_one(
  tmp_path, calls, monkeypatch, caplog
):
  def fail(self, has_failed=False):
    raise errors.InfrastructureError(f'away, {has_failed}')

  monkeypatch.setattr(_Tracker, 'close', fail, raising=False)
  with (
    pytest.raises(errors.DataError, match='bad data'),
    runs.opened(_config(), tmp_path),
  ):
    raise errors.DataError('bad data')
  assert 'away, True' in caplog.text
  with (
    pytest.raises(errors.InfrastructureError, match='away, False'),
    runs.opened(_config(), tmp_path),
  ):
    pass


def test_a_training_that_is_killed_keeps_its_run(tmp_path, calls, monkeypatch):
  def read():
    return sealed_json.read(tmp_path / 'tracking.json', '')['mlflow']

  with runs.opened(_config(), tmp_path):
    assert read() == 'first'
  config = _config()
  datasets.build(config.dataset, tmp_path)

  def restart(self, unused_round_num):
    self.run_id = 'second'

  seen = []
  monkeypatch.setattr(_Tracker, 'resume', restart, raising=False)
  monkeypatch.setattr(
    _Tracker, 'record', lambda *_: seen.append(read()), raising=False
  )
  training.train(config, tmp_path, shows_progress=False)
  assert {*seen} == {'second'}
