"""`binaries.predict` in this process, as is the server that it asks."""

import http.server
import io
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from binaries import predict as binary
from tests.testing import certificates, exportable, programs
from tff_algos.core import errors
from tff_algos.serving import clients, models, server, server_config


@pytest.fixture(name='predict')
def make_predict(capsys):
  """Returns a function that runs the program, and returns what it prints."""

  def predict(*arguments):
    with flagsaver.flagsaver():
      flags.FLAGS(['predict', *arguments])
      binary._main()
    return json.loads(capsys.readouterr().out)

  yield predict
  flags.FLAGS.unparse_flags()


@pytest.fixture(name='store', scope='module')
def make_store(tmp_path_factory):
  folder = tmp_path_factory.mktemp('export')
  exportable.write_all(folder)
  return models.ModelStore(folder)


@pytest.fixture(name='url', scope='module')
def make_url(store):
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with server.running(store, config) as ports:
    yield f'http://127.0.0.1:{ports.rest_api_port}/'


def test_instances_from_a_flag_a_file_and_stdin(
  predict, url, tmp_path, monkeypatch
):
  _, states = exportable.states(exportable.linear_model())
  expected = exportable.oracle_logits(
    states.personalized_weights, 0, np.float32([1, 2, 3, 4])
  )
  path = tmp_path / 'request.json'
  path.write_text('{"instances": [[1, 2, 3, 4]]}')
  monkeypatch.setattr(sys, 'stdin', io.StringIO('[[1, 2, 3, 4]]'))
  for arguments in (
    ['--instances=[[1, 2, 3, 4]]', '--version=1'],
    [f'--request_file={path}'],
    ['--request_file=-'],
  ):
    answer = predict(f'--url={url}', '--model=anna', *arguments)
    (row,) = answer['predictions']
    np.testing.assert_allclose(row['logits'], expected, rtol=1e-5)


def test_a_proxy_of_the_environment_is_not_asked(predict, url, monkeypatch):
  monkeypatch.setenv('http_proxy', 'http://127.0.0.1:1')
  monkeypatch.setenv('no_proxy', '')
  answer = predict(f'--url={url}', '--model=anna', '--instances=[[1, 2, 3, 4]]')
  assert len(answer['predictions']) == 1


def test_two_signatures_are_one_too_many(predict, tmp_path):
  path = tmp_path / 'request.json'
  path.write_text('{"instances": [[1]], "signature_name": "a"}')
  words = "--signature=b is not the signature_name of the request, 'a'"
  with pytest.raises(errors.UserError, match=words):
    predict(f'--request_file={path}', '--signature=b')


def test_token(predict, tmp_path):
  """The server of this test sees the header alone."""
  seen = []

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # noqa: N802
      seen.append(self.headers['Authorization'])
      self.send_response(200)
      self.end_headers()
      self.wfile.write(b'{}')

    def log_message(self, *_):
      pass

  path = tmp_path / 'token'
  path.write_text('secret\n')
  with http.server.HTTPServer(('127.0.0.1', 0), Handler) as served:
    thread = threading.Thread(target=served.handle_request)
    thread.start()
    predict(
      f'--url=http://127.0.0.1:{served.server_port}',
      *('--instances=[[1]]', f'--token_file={path}'),
    )
    thread.join()
  assert seen == ['Bearer secret']
  with pytest.raises(errors.UserError, match='the token cannot be read'):
    predict('--instances=[[1]]', '--token_file=/missing')
  path.write_text('secret\nother\n')
  words = 'must have one token, without blanks; it has 2'
  with pytest.raises(errors.UserError, match=words) as caught:
    predict('--instances=[[1]]', f'--token_file={path}')
  assert 'secret' not in str(caught.value)


def test_tls(predict, store, tmp_path):
  ca = certificates.Authority(tmp_path / 'ca')
  own, client = ca.issue_local('server'), ca.issue('client', 'anna')
  config = server_config.ServerConfig(
    rest_api_port=0,
    port=0,
    tls_certificate=own.certificate,
    tls_key=own.key,
    tls_client_ca=ca.path,
  )
  with server.running(store, config) as ports:
    url = f'https://127.0.0.1:{ports.rest_api_port}'
    answer = predict(
      *(f'--url={url}', '--model=anna', '--instances=[[1, 2, 3, 4]]'),
      *(f'--tls_ca={ca.path}', f'--tls_certificate={client.certificate}'),
      f'--tls_key={client.key}',
    )
    assert 'logits' in answer['predictions'][0]
    for files in ((), (ca.path,)):
      with pytest.raises(errors.UserError, match='does not answer'):
        asked = clients.Server(url, tls=clients.ClientTls(*files))
        binary.predict(asked, '/v1/models/anna:predict', {})


def test_rows_of_raw_columns(predict, url):
  answer = predict(
    f'--url={url}',
    '--model=personalized_models',
    '--instances=[{"client_id": "anna", "a": 1, "b": 2, "c": 3, "d": 4}]',
  )
  (row,) = answer['predictions']
  _, states = exportable.states(exportable.linear_model())
  expected = exportable.oracle_logits(
    states.personalized_weights, 0, np.float32([1, 2, 3, 4])
  )
  np.testing.assert_allclose(row['logits'], expected, rtol=1e-5)
  assert row['class_name'] == f'c{row["class_id"]}'


@pytest.mark.parametrize(
  ('content', 'name'),
  [
    ({'instances': [[1, 2]]}, 'serving_default'),
    ({'instances': [{'x': [1, 2], 'client_id': 'c'}]}, 'serving_default'),
    ({'instances': [{'age': None, 'client_id': 'c'}]}, 'serving_raw'),
    ({'inputs': {'x': [[1, 2]]}}, 'serving_default'),
    ({'inputs': {'image': [{'b64': 'YQ=='}]}}, 'serving_raw'),
    ({'inputs': [[1, 2]]}, 'serving_default'),
    ({'instances': 3}, 'serving_default'),
  ],
)
def test_signature_by_the_names_of_rows(content, name):
  assert binary._default_signature(content) == name


def test_signature(predict, url):
  answer = predict(
    f'--url={url}',
    '--signature=pick_cluster',
    '--instances=[{"x": [1, 2, 3, 4], "label": 1}]',
  )
  (row,) = answer['predictions']
  assert len(row['mean_loss']) == exportable.NUM_CLUSTERS


def test_refusal_is_one_line(url):
  arguments = (f'--url={url}', '--model=nobody', '--instances=[[1]]')
  done = subprocess.run(
    [sys.executable, '-m', 'binaries.predict', *arguments],
    cwd=programs.ROOT,
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 1
  last = done.stderr.splitlines()[-1]
  assert 'answers 404: {"error":"unknown model \'nobody\'' in last
  assert not done.stdout


@pytest.mark.parametrize(
  ('arguments', 'text'),
  [
    ([], 'give either --instances or --request_file'),
    (['--instances=[1'], 'the request cannot be read: Expecting'),
    (['--instances=3'], 'the request must be a JSON list or object'),
    ([f'--instances={"[" * 100_000}'], 'cannot be read: maximum recursion'),
    (['--request_file=/missing'], 'No such file'),
    (['--instances=[[1]]', '--url=http://127.0.0.1:1'], 'does not answer'),
    (['--instances=[[1]]', '--url=nonsense'], "'nonsense' must start with"),
    (
      ['--instances=[[1]]', '--url=grpc://a'],
      "'grpc://a' must start with http",
    ),
    (['--instances=[[1]]', '--url=http://a:85o1'], "as '85o1'"),
  ],
)
def test_mistakes_are_user_errors(predict, arguments, text):
  with pytest.raises(errors.UserError) as caught:
    predict(*arguments)
  assert text in str(caught.value)
