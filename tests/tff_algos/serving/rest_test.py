"""The REST API over real HTTP: TensorFlow Serving's formats and bad input."""

import base64
import json
import threading
import time
from concurrent import futures

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.testing import exportable
from tff_algos.serving import lanes, monitoring

X = exportable.sample_inputs(3)
ANNA = {'client_id': 'anna', 'x': [1, 2, 3, 4]}


def cluster_logits():
  state, _ = exportable.states(exportable.linear_model())
  return [
    exportable.oracle_logits(state.cluster_weights, k, X)
    for k in range(exportable.NUM_CLUSTERS)
  ]


def get(served, path):
  return served.http.get(f'/v1/models/{path}')


def post_bytes(served, model, body):
  return served.http.post(f'/v1/models/{model}:predict', content=body)


def post(served, model, content):
  return post_bytes(served, model, json.dumps(content).encode())


def check_refused(reply, status, text):
  assert reply.status_code == status, reply.text
  assert reply.headers['content-type'] == 'application/json'
  error = reply.json()
  assert set(error) == {'error'}
  assert text in error['error']
  assert '\n' not in error['error']


def test_the_address_of_the_api_lists_the_models(served):
  reply = served.http.get('/v1/models')
  assert reply.status_code == 200
  assert reply.json() == {
    'models': ['anna', 'cluster_models', 'personalized_models']
  }


def test_an_address_of_nothing_says_which_there_are(served):
  words = 'malformed request: GET /v1/model; GET /v1/models lists the models'
  check_refused(served.http.get('/v1/model'), 404, words)
  check_refused(served.http.get('/v1/models/'), 404, '/v1/models/; GET /v1/')


def test_status(served):
  expected = {
    'model_version_status': [
      {
        'version': '1',
        'state': 'AVAILABLE',
        'status': {'error_code': 'OK', 'error_message': ''},
      }
    ]
  }
  assert get(served, 'cluster_models').json() == expected
  assert get(served, 'cluster_models/versions/1').json() == expected


@pytest.mark.parametrize('path', ['anna', 'anna/versions/1'])
def test_metadata(served, path):
  reply = get(served, f'{path}/metadata').json()
  assert reply['model_spec'] == {
    'name': 'anna',
    'signature_name': '',
    'version': '1',
  }
  signatures = reply['metadata']['signature_def']['signature_def']
  signature = signatures['serving_default']
  assert signature['method_name'] == 'tensorflow/serving/predict'
  assert set(signature['outputs']) == {'class_id', 'logits', 'probabilities'}
  x = signature['inputs']['x']
  assert x['dtype'] == 'DT_FLOAT'
  assert x['tensor_shape'] == {
    'dim': [{'size': '-1', 'name': ''}, {'size': '4', 'name': ''}],
    'unknown_rank': False,
  }


def test_rows(served):
  ids = [1, 0, 1]
  instances = [
    {'x': row.tolist(), 'cluster_id': i} for row, i in zip(X, ids, strict=True)
  ]
  reply = post(served, 'cluster_models', {'instances': instances})
  assert reply.status_code == 200
  predictions = reply.json()['predictions']
  expected = np.stack(cluster_logits())[ids, np.arange(3)]
  np.testing.assert_allclose(
    [row['logits'] for row in predictions], expected, rtol=1e-5, atol=1e-6
  )
  classes = [row['class_id'] for row in predictions]
  assert classes == expected.argmax(axis=1).tolist()


def test_columns(served):
  reply = post(
    served,
    'cluster_models/versions/1',
    {
      'signature_name': 'predict_mixture',
      'inputs': {'x': X.tolist(), 'mixture': [[0.25, 0.75]] * 3},
    },
  )
  outputs = reply.json()['outputs']
  first, second = map(exportable.softmax, cluster_logits())
  np.testing.assert_allclose(
    outputs['probabilities'], 0.25 * first + 0.75 * second, rtol=1e-5
  )
  assert set(outputs) == {'probabilities', 'class_id'}


RAW = [
  dict(zip('abcd', row, strict=True), client_id=client_id)
  for row, client_id in zip(X.tolist(), ('d d', 'anna', 'b/2'), strict=True)
]


def post_examples(served, path, content):
  body = json.dumps(content).encode()
  return served.http.post(f'/v1/models/{path}', content=body)


def test_raw_rows(served):
  """They have the numbers of encoded rows, and the names of classes."""
  reply = post(
    served,
    'personalized_models',
    {'signature_name': 'serving_raw', 'instances': RAW},
  )
  encoded = post(
    served,
    'personalized_models',
    {
      'instances': [
        {'x': x, 'client_id': row['client_id']}
        for x, row in zip(X.tolist(), RAW, strict=True)
      ]
    },
  )
  assert reply.json()['predictions'] == [
    {**row, 'class_name': f'c{row["class_id"]}'}
    for row in encoded.json()['predictions']
  ]


def test_null_is_a_missing_number_of_raw_rows_alone(served):
  content = {'signature_name': 'serving_raw', 'instances': [RAW[0]] * 2}
  content['instances'][1] = {**RAW[0], 'b': None}
  reply = post(served, 'personalized_models', content)
  check_refused(reply, 400, 'column b must be finite, got nan in row 1')
  content = {'instances': [{**ANNA, 'x': [1, 2, 3, None]}]}
  reply = post(served, 'personalized_models', content)
  check_refused(reply, 400, 'must hold numbers, got null')


def test_classify(served):
  """Whole numbers are numbers; a feature of all rows is in the context."""
  row = {**RAW[0], 'a': 2}
  predicted = post(
    served,
    'personalized_models',
    {'signature_name': 'serving_raw', 'instances': [row, {**row, 'b': 0.5}]},
  ).json()['predictions']
  shared = {name: row.pop(name) for name in ('a', 'client_id')}
  reply = post_examples(
    served,
    'personalized_models:classify',
    {'context': shared, 'examples': [row, {**row, 'b': [0.5]}]},
  )
  assert reply.status_code == 200, reply.text
  assert reply.json()['result'] == [
    [[f'c{i}', score] for i, score in enumerate(one['probabilities'])]
    for one in predicted
  ]


@pytest.mark.parametrize(
  ('path', 'content', 'status', 'text'),
  [
    ('anna:classify', {}, 400, "'examples' must be a list that is not empty"),
    ('anna:classify', {'examples': [{}]}, 400, 'Feature: a (data type: float)'),
    ('anna:regress', {'examples': [{}]}, 404, "no signature 'regress'"),
    (
      'anna:classify',
      {'examples': [{}], 'signature_name': 'serving_raw'},
      400,
      "signature 'serving_raw' of model 'anna' is for tensorflow/serving/pred",
    ),
    ('nobody:classify', {'examples': [{}]}, 404, "unknown model 'nobody'"),
  ],
)
def test_bad_examples_are_refused(served, path, content, status, text):
  check_refused(post_examples(served, path, content), status, text)


def test_pick_cluster_answers_one_row(served):
  reply = post(
    served,
    'cluster_models',
    {
      'signature_name': 'pick_cluster',
      'instances': [{'x': row.tolist(), 'label': 2} for row in X],
    },
  )
  (row,) = reply.json()['predictions']
  losses = [
    -np.log(exportable.softmax(logits)[:, 2]).mean()
    for logits in cluster_logits()
  ]
  np.testing.assert_allclose(row['mean_loss'], losses, rtol=1e-5)
  assert row['cluster_id'] == np.argmin(losses)


def test_single_input_needs_no_name(served):
  by_name = post(served, 'anna', {'instances': [{'x': X[0].tolist()}]})
  bare = post(served, 'anna', {'instances': X[:1].tolist()})
  columns = post(served, 'anna', {'inputs': X[:1].tolist()})
  assert bare.json() == by_name.json()
  assert columns.json()['outputs']['logits'] == [
    bare.json()['predictions'][0]['logits']
  ]


def test_client_ids_as_text_and_base64(served):
  spelled = base64.b64encode('çelik'.encode()).decode()
  instances = [
    {'client_id': client_id, 'x': [1, 2, 3, 4]}
    for client_id in ('çelik', {'b64': spelled}, 'b/2', 'd d')
  ]
  reply = post(served, 'personalized_models', {'instances': instances})
  predictions = reply.json()['predictions']
  assert predictions[0] == predictions[1]
  _, states = exportable.states(exportable.linear_model())
  for i, row in ((2, 0), (1, 2), (3, 3)):
    logits = exportable.oracle_logits(
      states.personalized_weights, i, np.float32([1, 2, 3, 4])
    )
    np.testing.assert_allclose(
      predictions[row]['logits'], logits, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
  ('path', 'text'),
  [
    ('nobody', "unknown model 'nobody'; the models are anna, cluster_models"),
    ('..', 'malformed request'),
    ('%2e%2e', "unknown model '..'"),
    ('%2e%2e%2fexport', 'malformed request'),
    ('anna/versions/2', "model 'anna' has no version 2; it has 1"),
    ('anna/versions/2/metadata', "model 'anna' has no version 2"),
    ('anna/labels/stable', "model 'anna' has no label 'stable'; it has none"),
    ('nobody/labels/stable', "unknown model 'nobody'"),
    ('x' * 5000, 'unknown model'),
  ],
)
def test_unknown_things_are_not_found(served, path, text):
  check_refused(get(served, path), 404, text)


@pytest.mark.parametrize('version', ['x', '-1', '1.0', '9' * 50, '٣'])
def test_version_must_be_a_whole_number(served, version):
  reply = get(served, f'anna/versions/{version}')
  check_refused(reply, 400, 'a version must be a whole number')


def test_other_methods_are_refused(served):
  check_refused(
    served.http.put('/v1/models/anna'), 405, 'malformed request: PUT'
  )
  for path in ('anna:predict', 'anna/versions/1:predict'):
    text = f'malformed request: GET /v1/models/{path};'
    check_refused(get(served, path), 405, text)


@pytest.mark.parametrize(
  ('model', 'content', 'text'),
  [
    ('anna', [], 'must be a JSON object'),
    ('anna', {}, "either 'instances' (rows) or 'inputs' (columns)"),
    ('anna', {'instances': [], 'inputs': []}, 'either'),
    ('anna', {'instances': []}, 'a list that is not empty'),
    ('anna', {'instances': 3}, 'a list that is not empty'),
    ('anna', {'instances': [3]}, 'must have shape [batch, 4], got [1]'),
    ('anna', {'instances': [[1, 2, 3]]}, 'shape [batch, 4], got [1, 3]'),
    ('anna', {'instances': [[1, 2, 3, 4], [1]]}, 'differ in length'),
    ('anna', {'instances': [[1, 2, 3, [4]]]}, 'differ in length'),
    ('anna', {'instances': [[1, 2, 3, 1e39]]}, 'must be finite'),
    ('anna', {'instances': [{'y': [1, 2, 3, 4]}]}, 'inputs x, got y'),
    ('anna', {'instances': [{'x': [1] * 4, 'y': 1}]}, 'inputs x, got x, y'),
    ('anna', {'instances': [{'x': [1] * 4}, [1] * 4]}, 'element 1 of'),
    ('anna', {'inputs': {'x': []}}, 'must have shape [batch, 4], got [0]'),
    ('anna', {'inputs': {'z': []}}, "'inputs' must name the inputs x, got z"),
    ('anna', {'signature_name': 3, 'inputs': []}, 'must be a string'),
    ('cluster_models', {'instances': [[1]]}, 'several inputs (cluster_id, x)'),
    (
      'cluster_models',
      {'inputs': {'x': [[1] * 4], 'cluster_id': [2]}},
      'cluster_id must be from 0 to 1, got 2 in row 0',
    ),
    (
      'cluster_models',
      {'inputs': {'x': [[1] * 4], 'cluster_id': [0, 1]}},
      'it has 2, and the number of examples is 1',
    ),
    (
      'personalized_models',
      {'instances': [{**ANNA, 'client_id': 7}]},
      'strings or {"b64": ...} objects, got a whole number',
    ),
    (
      'personalized_models',
      {'instances': [{**ANNA, 'client_id': '\ud800'}]},
      'is not JSON: no low surrogate',
    ),
  ],
)
def test_bad_requests_are_refused(served, model, content, text):
  check_refused(post(served, model, content), 400, text)


@pytest.mark.parametrize(
  'body',
  [
    b'',
    b'{',
    b'\xff\xff',
    b'{"instances": [[1, 2, 3, NaN]]}',
    b'{"instances": [[1, 2, 3, -Infinity]]}',
    b'{"instances": ' + b'[' * 40_000 + b']' * 40_000 + b'}',
    b'{"instances": ' + b'[' * 40 + b']' * 40 + b'}',
    b'{"instances": [' + b'9' * 5000 + b']}',
  ],
  ids=range(8),
)
def test_bodies_that_are_not_json_are_refused(served, body):
  reply = post_bytes(served, 'anna', body)
  check_refused(reply, 400, '')


def test_unknown_client_and_signature_are_not_found(served):
  content = {'instances': [ANNA, {**ANNA, 'client_id': 'bob'}]}
  reply = post(served, 'personalized_models', content)
  words = (
    'unknown client id bob; this model serves the 4 clients that took part'
  )
  check_refused(reply, 404, words)
  reply = post(served, 'anna', {'signature_name': 'tell', 'inputs': [[1] * 4]})
  check_refused(reply, 404, "no signature 'tell'; it has classify, servi")
  # An operation of the SavedModel's own, which metadata lists.
  name = '__saved_model_init_op'
  reply = post(served, 'anna', {'signature_name': name, 'inputs': {}})
  check_refused(reply, 404, 'no signature')


def test_too_many_rows_are_refused(served):
  text = 'the request has 101 rows, and at most 100 are answered at once'
  for content in ({'instances': [[1] * 4] * 101}, {'inputs': [[1] * 4] * 101}):
    check_refused(post(served, 'anna', content), 413, text)
  content = {'examples': [{'a': 1}] * 101}
  check_refused(post_examples(served, 'anna:classify', content), 413, text)


@pytest.mark.parametrize('num_bytes', [100_001, 5_000_000])
def test_oversized_requests_are_refused(served, num_bytes):
  reply = post_bytes(served, 'anna', b' ' * num_bytes)
  check_refused(reply, 413, 'larger than 100000 bytes')
  # The same without a stated length.
  chunks = iter([b' ' * num_bytes])
  reply = post_bytes(served, 'anna', chunks)
  check_refused(reply, 413, 'larger than 100000 bytes')


def test_request_of_the_largest_size_is_answered(served):
  body = json.dumps({'instances': [[1, 2, 3, 4]]}).encode()
  reply = post_bytes(served, 'anna', body.ljust(100_000))
  assert reply.status_code == 200


_JSON = st.recursive(
  st.none()
  | st.booleans()
  | st.integers()
  | st.floats()
  | st.text(max_size=5)
  | st.sampled_from(['anna', 'predict_cluster', {'b64': 'YW5uYQ=='}]),
  lambda inner: (
    st.lists(inner, max_size=4)
    | st.dictionaries(
      st.sampled_from(['x', 'cluster_id', 'client_id', 'label', 'b64', 'z']),
      inner,
      max_size=3,
    )
  ),
  max_leaves=12,
)


@hypothesis.given(
  model=st.sampled_from(['anna', 'cluster_models', 'personalized_models']),
  content=_JSON
  | st.fixed_dictionaries(
    {},
    optional={'instances': _JSON, 'inputs': _JSON, 'signature_name': _JSON},
  ),
)
@hypothesis.settings(max_examples=300)
def test_any_json_is_answered(served, model, content):
  reply = post_raw(served, model, json.dumps(content).encode())
  assert reply.status_code in (200, 400, 404)


@hypothesis.given(
  body=st.binary(max_size=50)
  | st.binary(max_size=3).map(lambda junk: b'{"instances": [' + junk + b']}')
)
@hypothesis.settings(max_examples=100)
def test_any_bytes_are_answered(served, body):
  reply = post_raw(served, 'anna', body)
  assert reply.status_code in (200, 400)


def post_raw(served, model, body):
  """Posts a body and checks that the server lives on."""
  reply = post_bytes(served, model, body)
  assert ('error' in reply.json()) == (reply.status_code != 200)
  assert get(served, 'anna').status_code == 200
  return reply


def test_requests_at_the_same_time_get_their_own_answers(served):
  rows = np.random.default_rng(0).normal(size=[40, 4]).astype(np.float32)
  _, states = exportable.states(exportable.linear_model())

  def ask(i):
    client = i % len(exportable.CLIENT_IDS)
    content = {
      'client_id': exportable.CLIENT_IDS[client],
      'x': rows[i].tolist(),
    }
    reply = post(served, 'personalized_models', {'instances': [content]})
    logits = exportable.oracle_logits(
      states.personalized_weights, client, rows[i]
    )
    return reply.json()['predictions'][0]['logits'], logits

  with futures.ThreadPoolExecutor(8) as pool:
    for actual, expected in pool.map(ask, range(40)):
      np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_health(served):
  assert served.http.get('/healthz').json() == {'status': 'ok'}
  assert get(served, 'anna').status_code == 200
  post(served, 'anna', {'instances': [[1, 2, 3, 4]]})
  reply = served.http.get('/readyz')
  assert reply.status_code == 200
  assert reply.json()['num_models'] >= 1


def metrics(served):
  """Returns name with labels -> value."""
  reply = served.http.get('/metrics')
  assert reply.headers['content-type'].startswith('text/plain')
  lines = [line for line in reply.text.splitlines() if line[0] != '#']
  pairs = [line.rsplit(' ', 1) for line in lines]
  return {key: float(value) for key, value in pairs}


def test_metrics_count_requests_by_model_and_status(served):
  post(served, 'anna', {'instances': [[1, 2, 3, 4]]})
  labels = 'api="rest",method="predict",model="anna",'
  good = f'tff_algos_requests_total{{{labels}status="200",version="1"}}'
  bad = f'tff_algos_requests_total{{{labels}status="400",version="1"}}'
  timed = f'tff_algos_request_seconds_count{{{labels}version="1"}}'
  before = metrics(served)
  for content in ({'instances': [[1, 2, 3, 4]]}, {}, {'inputs': [[1] * 4]}):
    post(served, 'anna', content)
  after = metrics(served)
  assert after[good] == before[good] + 2
  assert after[bad] == before.get(bad, 0) + 1
  assert after[timed] == before[timed] + 3
  assert after['tff_algos_lane_requests{lane="small"}'] == 0
  assert after['tff_algos_model_version{model="anna"}'] == 1


def test_others_are_answered_during_a_scrape(served, monkeypatch):
  answered = threading.Event()

  def text(monitor):
    del monitor
    return b'yes' if answered.wait(10) else b'no'

  monkeypatch.setattr(monitoring.Monitor, 'text', text)
  with futures.ThreadPoolExecutor() as pool:
    scrape = pool.submit(served.http.get, '/metrics')
    time.sleep(0.1)
    assert pool.submit(served.http.get, '/healthz').result(5).status_code == 200
    answered.set()
    assert scrape.result().content == b'yes'


def test_clients_choose_no_labels_of_metrics(served):
  for i in range(9):
    get(served, f'made-up-{i}')
    get(served, f'anna/versions/{70 + i}')
  assert not [key for key in metrics(served) if 'made-up' in key or '7' in key]


def test_bugs_have_a_request_id_and_one_trace(served, monkeypatch, caplog):
  def submit(self, *arguments, **options):
    raise AssertionError('our secret')

  monkeypatch.setattr(lanes.Lanes, 'submit', submit)
  reply = served.http.post(
    '/v1/models/anna:predict', content=b'{}', headers={'x-request-id': 'mine'}
  )
  assert reply.status_code == 500
  assert reply.headers['x-request-id'] == 'mine'
  assert reply.json() == {'error': 'internal error at /v1/models/anna:predict'}
  (trace,) = [one for one in caplog.records if one.exc_info]
  assert 'our secret' in str(trace.exc_info[1])


def test_request_ids(served):
  given = served.http.get('/v1/models', headers={'X-Request-Id': 'a-1.b_2'})
  assert given.headers['x-request-id'] == 'a-1.b_2'
  made_up = get(served, 'nobody')
  assert made_up.status_code == 404
  assert len(made_up.headers['x-request-id']) == 32
  strange = served.http.get('/v1/models', headers={'X-Request-Id': 'a b'})
  assert len(strange.headers['x-request-id']) == 32
