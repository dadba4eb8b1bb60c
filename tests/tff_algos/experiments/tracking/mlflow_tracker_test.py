"""MLflow's own client with its store of files, and with a real server."""

import math
import sys

import pytest

from tests.testing import mlflow_server, tracked
from tff_algos.core import errors
from tff_algos.experiments.tracking import mlflow_tracker, tracker

_CONFIG = tracker.TrackingConfig('mlflow', 'lab')
_OPTIONS = {'algorithm.num_clusters': 2, 'model.words': 'x' * 7000} | {
  f'key_{index}': index for index in range(150)
}


@pytest.fixture(scope='session')
def server(tmp_path_factory):
  with mlflow_server.running(tmp_path_factory.mktemp('mlflow')) as address:
    yield address


@pytest.fixture(
  name='mlflow',
  params=['files', pytest.param('server', marks=pytest.mark.verify)],
)
def import_mlflow(request, tmp_path, monkeypatch):
  monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
  address = f'file://{tmp_path}/store'
  if request.param == 'server':
    address = request.getfixturevalue('server')
  monkeypatch.setenv('MLFLOW_TRACKING_URI', address)
  # Not by every process that collects the tests: it takes seconds.
  import mlflow

  return mlflow


def _open(run_id=None):
  return mlflow_tracker.MlflowTracker(_CONFIG, _OPTIONS, 'sweep/seed_0', run_id)


def _history(client, run_id, name):
  history = client.get_metric_history(run_id, name)
  return [(metric.step, metric.value) for metric in history]


def test_a_run_has_its_config_and_the_metrics_of_its_rounds(mlflow):
  opened = _open()
  opened.resume(0)
  opened.record(0, {'train/loss': 2.0})
  opened.record(1, {'train/loss': 1.5, 'test/accuracy': math.nan})
  opened.summarize({'test/accuracy': 0.5})
  opened.close()
  client = mlflow.MlflowClient()
  run = client.get_run(opened.run_id)
  assert run.info.run_name == 'sweep/seed_0'
  assert run.info.status == 'FINISHED'
  assert mlflow.get_experiment(run.info.experiment_id).name == 'lab'
  assert run.data.params == {
    key: str(value)[:6000] for key, value in _OPTIONS.items()
  }
  assert _history(client, opened.run_id, 'train/loss') == [(0, 2.0), (1, 1.5)]
  last = _history(client, opened.run_id, 'evaluation/test/accuracy')
  assert last == [(1, 0.5)]
  assert 'test/accuracy' not in run.data.metrics


def test_runs_that_start_at_once_share_a_new_experiment(mlflow, monkeypatch):
  first = _open()
  client, asked = mlflow.MlflowClient, []
  ask = client.get_experiment_by_name

  def find(self, name):
    """Misses the experiment of `first` when it is asked first."""
    asked.append(name)
    return ask(self, name) if len(asked) > 1 else None

  monkeypatch.setattr(client, 'get_experiment_by_name', find)
  second = _open()
  assert second.run_id != first.run_id
  runs = [client().get_run(one.run_id).info for one in (first, second)]
  assert runs[0].experiment_id == runs[1].experiment_id


def test_an_experiment_that_cannot_be_created_is_an_error(mlflow, monkeypatch):
  def fail(*unused):
    raise mlflow.MlflowException('no quota')

  client = mlflow.MlflowClient
  monkeypatch.setattr(client, 'get_experiment_by_name', lambda *unused: None)
  monkeypatch.setattr(client, 'create_experiment', fail)
  with pytest.raises(errors.InfrastructureError, match='no quota'):
    _open()


def test_rounds_that_are_run_again_are_not_sent_again(mlflow):
  first = _open()
  for round_num in range(4):
    first.record(round_num, {'train/loss': 1.0 / (1 + round_num)})
  second = _open(first.run_id)
  second.resume(2)
  for round_num in (3, 4):
    second.record(round_num, {'train/loss': 1.0 / (1 + round_num)})
  assert second.run_id == first.run_id
  history = _history(mlflow.MlflowClient(), first.run_id, 'train/loss')
  steps = [step for step, _ in history]
  assert steps == [0, 1, 2, 3, 4]


def test_a_run_has_failed_until_a_later_program_goes_on_with_it(mlflow):
  client = mlflow.MlflowClient()
  first = _open()
  first.record(0, {'train/loss': 1.0})
  first.close(has_failed=True)
  assert client.get_run(first.run_id).info.status == 'FAILED'
  second = _open(first.run_id)
  second.record(1, {'train/loss': 0.5})
  second.close()
  assert client.get_run(first.run_id).info.status == 'FINISHED'


def test_a_training_that_begins_anew_is_another_run(mlflow):
  first = _open()
  first.record(0, {'train/loss': 1.0})
  second = _open(first.run_id)
  second.resume(0)
  second.record(0, {'train/loss': 3.0})
  assert second.run_id != first.run_id
  client = mlflow.MlflowClient()
  assert client.get_run(first.run_id).info.status == 'KILLED'
  assert _history(client, second.run_id, 'train/loss') == [(0, 3.0)]


def test_pictures_and_models_with_their_signature(mlflow, tmp_path):
  opened = _open()
  opened.add_pictures([tracked.write_picture(tmp_path)])
  model = tracker.read_model(tracked.write_bundle(tmp_path))
  # Of the same release nothing is sent again.
  for provenance in (model.provenance, model.provenance, {'round_num': 8}):
    opened.register(model._replace(provenance=provenance))
  client = mlflow.MlflowClient()
  names = {file.path for file in client.list_artifacts(opened.run_id, 'report')}
  assert names == {'report/accuracy.png'}
  versions = client.search_model_versions("name='lab.cluster_models'")
  assert sorted(int(version.version) for version in versions) == [1, 2]
  assert {version.run_id for version in versions} == {opened.run_id}
  tags = {int(version.version): version.tags for version in versions}
  assert tags[2] == {'round_num': '8'}
  assert tags[1] == {
    'round_num': '7',
    'config_hash': 'abc',
    'dataset_version': 'v1',
  }
  info = mlflow.models.get_model_info('models:/lab.cluster_models/1')
  fields = {
    field.name: (field.type.name, field.shape)
    for field in [*info.signature.inputs, *info.signature.outputs]
  }
  assert fields == {
    'client_id': (info.signature.inputs.inputs[0].type.name, (-1,)),
    'x': ('float32', (-1, 8, 8)),
    'logits': ('float32', (-1, 10)),
  }
  place = 'cluster_models/3/saved_model/saved_model.pb'
  sent = client.download_artifacts(opened.run_id, place, str(tmp_path))
  with open(sent, 'rb') as file:
    assert file.read() == (model.bundle / 'saved_model.pb').read_bytes()


def test_a_server_that_is_away_is_the_machines_fault(monkeypatch):
  monkeypatch.setenv('MLFLOW_TRACKING_URI', 'http://127.0.0.1:9')
  monkeypatch.setenv('MLFLOW_HTTP_REQUEST_MAX_RETRIES', '0')
  with pytest.raises(
    errors.InfrastructureError, match='MLflow at http://127.0.0.1:9 failed'
  ):
    _open()


def test_without_mlflow_the_extra_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, 'mlflow', None)
  with pytest.raises(errors.UserError, match="the extra 'tracking'"):
    _open()
