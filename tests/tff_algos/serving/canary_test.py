"""Labels and canaries of a running server: which version answers whom."""

import types

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
  get_model_metadata_pb2,
  get_model_status_pb2,
  model_service_pb2_grpc,
  predict_pb2,
  prediction_service_pb2_grpc,
)

from tests.testing import exportable, patience, servers
from tff_algos.core import durable, errors
from tff_algos.export import labels as labels_lib
from tff_algos.export import personalized_models
from tff_algos.serving import canary, models, server_config

NUM_CLIENTS = 40
CLIENT_IDS = [f'client {i}' for i in range(NUM_CLIENTS)]
SHARE = labels_lib.Labels({'stable': 1, 'canary': 2}, 0.5)
CANARIES = {one for one in CLIENT_IDS if canary.is_canary(one, SHARE)}
# The newest; a version's logits are its number.
VERSIONS = (1, 2, 3)
NAME = 'personalized_models'


@pytest.fixture(name='folder', scope='module')
def make_folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('canary')
  model = exportable.linear_model()
  algorithm = exportable.algorithm(model)
  server_state, _ = exportable.states(model)
  for version in VERSIONS:
    zeros = exportable.random_weights(model, NUM_CLIENTS, seed=0)
    zeros['kernel'][:] = 0
    zeros['bias'][:] = version
    states = exportable.ClientState(zeros, np.zeros([NUM_CLIENTS, 2], 'f'))
    personalized_models.export_personalized_models(
      *(folder / NAME, algorithm, server_state, CLIENT_IDS),
      exportable.loading(states),
      *(exportable.sample_inputs(), exportable.PROVENANCE, exportable.FEATURES),
    )
  return folder


@pytest.fixture(name='served', scope='module')
def make_served(folder):
  labels_lib.assign(folder, [NAME], SHARE)
  config = server_config.ServerConfig(
    rest_api_port=0, port=0, access_log=True, max_rows=1000
  )
  with (
    pytest.MonkeyPatch.context() as patch,
    servers.running(models.ModelStore(folder), config) as opened,
  ):
    patch.setattr(models, '_REFRESH_SECONDS', 0.02)
    yield opened


@pytest.fixture(name='assign')
def make_assign(served, folder):
  """Writes labels, and waits until the server has taken them over."""

  def assign(labels):
    labels_lib.assign(folder, [NAME], labels)
    wait_for_labels(served, labels)

  yield assign
  assign(SHARE)


def get(served, path):
  return served.http.get(path)


def post(served, path, content):
  return served.http.post(f'/v1/models/{path}', json=content)


def wait_for_labels(served, labels):
  expected = {
    f'tff_algos_label_version{{label="{label}",model="{NAME}"}} {version}.0'
    for label, version in labels.versions.items()
  }
  if labels.canary_share is not None:
    share = (
      f'tff_algos_canary_share{{model="{NAME}"}} {labels.canary_share:.1f}'
    )
    expected.add(share)

  def found():
    lines = get(served, '/metrics').text.splitlines()
    wanted = ('tff_algos_label_version{', 'tff_algos_canary_share{')
    return {line for line in lines if line.startswith(wanted)}

  patience.until(lambda: found() == expected)


def answering(served, *client_ids, path=''):
  """Returns the version that answers rows of clients."""
  rows = [{'client_id': one, 'x': [0.0] * 4} for one in client_ids]
  reply = post(served, f'{NAME}{path}:predict', {'instances': rows})
  assert reply.status_code == 200, reply.text
  (version,) = {row['logits'][0] for row in reply.json()['predictions']}
  return int(version)


def test_each_client_stays_with_its_version(served):
  assert 10 < len(CANARIES) < 30
  for _ in range(2):
    for client_id in CLIENT_IDS[:12]:
      expected = 2 if client_id in CANARIES else 1
      assert answering(served, client_id) == expected


def test_rows_of_several_clients_have_one_version(served):
  first, second, *_ = sorted(CANARIES)
  other = next(one for one in CLIENT_IDS if one not in CANARIES)
  assert answering(served, first, second) == 2
  assert answering(served, first, other) == 1
  # More rows than the lane of small requests answers.
  assert answering(served, *[first] * 300) == 2
  assert answering(served, *[first] * 300, other) == 1


def test_classify_and_raw_rows_are_routed_likewise(served):
  row = dict.fromkeys('abcd', 0.5)
  for client_id in (sorted(CANARIES)[0], sorted({*CLIENT_IDS} - CANARIES)[0]):
    version = answering(served, client_id)
    examples = {'context': {'client_id': client_id}, 'examples': [row]}
    content = {
      'signature_name': 'serving_raw',
      'instances': [{**row, 'client_id': client_id}],
    }
    before = counts(served, version)
    assert post(served, f'{NAME}:classify', examples).status_code == 200
    reply = post(served, f'{NAME}:predict', content)
    assert reply.json()['predictions'][0]['logits'] == [version] * 3
    assert counts(served, version) == [number + 1 for number in before]


def count(served, method, version, status='200'):
  wanted = (
    f'tff_algos_requests_total{{api="rest",method="{method}",model="{NAME}",'
    f'status="{status}",version="{version}"}} '
  )
  for line in get(served, '/metrics').text.splitlines():
    if line.startswith(wanted):
      return float(line.split()[-1])
  return 0


def counts(served, version):
  return [count(served, method, version) for method in ('classify', 'predict')]


def test_version_or_label_of_a_request_is_what_answers(served):
  canary_id = sorted(CANARIES)[0]
  for path, version in (
    ('/versions/1', 1),
    ('/versions/3', 3),
    ('/labels/stable', 1),
    ('/labels/canary', 2),
  ):
    assert answering(served, canary_id, path=path) == version
    reply = get(served, f'/v1/models/{NAME}{path}/metadata').json()
    assert reply['model_spec']['version'] == str(version)
    (status,) = get(served, f'/v1/models/{NAME}{path}').json()[
      'model_version_status'
    ]
    assert status['version'] == str(version)
  reply = post(served, f'{NAME}/labels/beta:predict', {'inputs': []})
  assert reply.status_code == 404
  words = f"model '{NAME}' has no label 'beta'; it has stable, canary"
  assert reply.json() == {'error': words}


def test_grpc(served):
  def ask(label='', client_id=CLIENT_IDS[0]):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = NAME
    if label:
      request.model_spec.version_label = label
    request.inputs['x'].CopyFrom(tf.make_tensor_proto(np.zeros([1, 4], 'f')))
    request.inputs['client_id'].CopyFrom(tf.make_tensor_proto([client_id]))
    return stub.Predict(request, timeout=30).model_spec.version.value

  stub = prediction_service_pb2_grpc.PredictionServiceStub(served.channel)
  assert [ask(label) for label in ('stable', 'canary')] == [1, 2]
  for client_id in CLIENT_IDS[:6]:
    assert ask('', client_id) == (2 if client_id in CANARIES else 1)
  with pytest.raises(grpc.RpcError, match="no label 'beta'") as error:
    ask('beta')
  assert error.value.code() == grpc.StatusCode.NOT_FOUND
  asked = get_model_metadata_pb2.GetModelMetadataRequest(
    metadata_field=['signature_def']
  )
  asked.model_spec.name, asked.model_spec.version_label = NAME, 'canary'
  reply = stub.GetModelMetadata(asked, timeout=30)
  assert reply.model_spec.version.value == 2
  asked = get_model_status_pb2.GetModelStatusRequest()
  asked.model_spec.CopyFrom(reply.model_spec)
  asked.model_spec.version_label = 'stable'
  status = model_service_pb2_grpc.ModelServiceStub(served.channel)
  (found,) = status.GetModelStatus(asked, timeout=30).model_version_status
  assert found.version == 1


def test_log_and_metrics_name_the_version_that_answered(served, access_log):
  client_id = sorted(CANARIES)[0]
  before = [count(served, 'predict', 2, status) for status in ('200', '400')]
  answering(served, client_id)
  row = {'client_id': client_id, 'x': [0.0] * 4}
  # Rows of other lengths; the stable version is the first to refuse.
  assert post(served, f'{NAME}:predict', {'instances': [{}]}).status_code == 400
  bad = {'inputs': {'client_id': [client_id], 'x': [row['x']] * 2}}
  assert post(served, f'{NAME}:predict', bad).status_code == 400
  after = [count(served, 'predict', 2, status) for status in ('200', '400')]
  assert after == [before[0] + 1, before[1] + 1]
  # Beside them are those of the metrics.
  lines = [line for line in access_log(7) if line['method'] == 'predict']
  assert [(line['version'], line['status']) for line in lines] == [
    ('2', '200'),
    ('1', '400'),
    ('2', '400'),
  ]


def test_the_address_is_that_of_the_connection(served, access_log):
  headers = {'X-Forwarded-For': '10.0.0.1'}
  served.http.get(f'/v1/models/{NAME}', headers=headers)
  assert [line['peer'] for line in access_log(1)] == ['127.0.0.1']


def test_labels_change_while_the_server_runs(served, assign, folder, caplog):
  clients = CLIENT_IDS[:8]

  def versions():
    return {answering(served, client_id) for client_id in clients}

  assign(SHARE._replace(canary_share=0))
  assert versions() == {1}
  assign(labels_lib.Labels({'stable': 2, 'canary': 3}, 1.0))
  assert versions() == {3}
  # Damaged content is refused, and what was before goes on.
  path = folder / 'labels.json'
  for content, words in (
    ('{', 'labels.json cannot be used: Expecting'),
    (f'{{"{NAME}": {{"labels": {{"stable": 9}}}}}}', 'has no version 9'),
    ('{"nobody": {"labels": {"stable": 1}}}', "unknown model 'nobody'"),
  ):
    with durable.replacing(path) as file:
      file.write(content)
    patience.until(lambda words=words: words in caplog.text)
    assert versions() == {3}
    # Nothing was before for a server that starts.
    starting = models.ModelStore(folder).refreshed()
    with pytest.raises(errors.UserError, match='labels.json cannot') as error:
      starting.__enter__()
    assert words in str(error.value)
  assert caplog.text.count('version labels before are used on') == 3
  path.unlink()
  wait_for_labels(served, labels_lib.Labels())
  assert versions() == {3}
  assign(labels_lib.Labels({'stable': 1}))
  assert versions() == {3}  # Without a canary the newest version answers.


def test_a_canary_that_cannot_answer_is_not_taken_for_the_stable_version():
  def get(name, version):
    if version == 'canary':
      raise errors.RequestError('it is being loaded', status=503)
    store.version = 1
    return types.SimpleNamespace(clients=lambda _: sorted(CANARIES)[:1])

  store = types.SimpleNamespace(
    get=get, canary=lambda name: SHARE, version=None
  )
  question = types.SimpleNamespace(inputs={})
  with pytest.raises(errors.RequestError):
    canary.ask(store, NAME, None, lambda model: question)
  assert store.version is None


def test_share_and_who_is_in_it():
  ids = [f'c{i}' for i in range(4000)]

  def chosen(share, version=2):
    labels = labels_lib.Labels({'stable': 1, 'canary': version}, share)
    return {one for one in ids if canary.is_canary(one, labels)}

  assert not chosen(0.0)
  assert len(chosen(1.0)) == 4000
  # Six standard deviations; the hash is fixed, and so is the outcome.
  assert abs(len(chosen(0.1)) - 400) < 115
  assert chosen(0.1) < chosen(0.3)
  assert abs(len(chosen(0.3) & chosen(0.3, version=3)) - 360) < 110


def test_callers_stand_for_requests_without_clients():
  """Of models for any client: an answer for each token, or each address."""

  class Model:
    def __init__(self, version):
      self.version = version

    def clients(self, inputs):
      return set()

  class Store:
    caller = models.access.Caller(name='operator', origin='10.0.0.1')

    def get(self, name, version=None):
      return Model(2 if version == 'canary' else 1)

    def canary(self, name):
      return SHARE

  def version_of(name):
    store = Store()
    store.caller = store.caller._replace(name=name)
    return canary.ask(store, NAME, None, Question).model.version

  class Question:
    inputs = {}

    def __init__(self, model):
      self.model = model

  found = {name: version_of(name) for name in CLIENT_IDS}
  assert {name for name in found if found[name] == 2} == CANARIES
