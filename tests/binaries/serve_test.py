"""`binaries.serve` as a process."""

import json
import shutil
import signal
import socket
import time

import numpy as np
import pytest

from tests.testing import exportable, patience

START_SECONDS = 120.0
END_SECONDS = 30.0


@pytest.fixture(name='workdir', scope='module')
def make_workdir(tmp_path_factory):
  """With one model, as each is loaded by each server."""
  workdir = tmp_path_factory.mktemp('run')
  exportable.write_all(workdir / 'export')
  for name in ('cluster_models', 'anna'):
    shutil.rmtree(workdir / 'export' / name)
  return workdir


@pytest.fixture(name='start')
def make_start(launcher, workdir, tmp_path):
  """Starts a server; returns the program and the address of its REST API."""

  def start():
    port_file = tmp_path / 'ports.json'
    program = launcher.start(
      'binaries.serve',
      *(f'--workdir={workdir}', '--rest_api_port=0', '--port=0'),
      f'--port_file={port_file}',
    )
    patience.until(lambda: port_file.exists(), START_SECONDS, [program])
    port = json.loads(port_file.read_text())['rest_api_port']
    return program, f'http://127.0.0.1:{port}'

  return start


@pytest.mark.slow
@pytest.mark.parametrize(
  'number',
  [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.verify)],
)
def test_signal_ends_the_server_cleanly(start, launcher, tmp_path, number):
  server, url = start()
  asked = launcher.run(
    'binaries.predict',
    *(f'--url={url}', '--model=personalized_models'),
    '--instances=[{"client_id": "anna", "x": [1, 2, 3, 4]}]',
  )
  server.send_signal(number)
  server.wait(END_SECONDS)
  assert asked.returncode == 0, asked.stderr
  (row,) = json.loads(asked.stdout)['predictions']
  _, states = exportable.states(exportable.linear_model())
  logits = exportable.oracle_logits(
    states.personalized_weights, 0, np.float32([1, 2, 3, 4])
  )
  np.testing.assert_allclose(row['logits'], logits, rtol=1e-5)
  assert server.returncode == 0
  log = server.stderr
  assert f'. REST API at {url}/v1/models, gRPC at 127.0.0.1:' in log
  assert 'Traceback' not in log
  assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_signal_with_an_open_connection(start):
  server, url = start()
  port = int(url.rsplit(':', 1)[1])
  with socket.create_connection(('127.0.0.1', port)) as idle:
    # A client that never ends its request does not keep the server alive.
    idle.sendall(b'POST /v1/models/anna:predict HTTP/1.1\r\n')
    idle.sendall(b'Host: x\r\nContent-Length: 100\r\n\r\n{')
    time.sleep(0.2)
    server.send_signal(signal.SIGTERM)
    server.wait(END_SECONDS)
  assert server.returncode == 0


@pytest.mark.parametrize(
  ('arguments', 'text'),
  [
    ([], 'give either --workdir or --model_base_path'),
    (['--workdir=a', '--model_base_path=b'], 'give either'),
    (['--workdir=/missing'], 'model folder /missing/export cannot be read'),
    (
      ['--workdir=s3://bucket/run', '--print_tf_serving_config'],
      's3://bucket/run: --print_tf_serving_config takes a local folder',
    ),
  ],
)
def test_mistakes_are_one_line(launcher, arguments, text):
  done = launcher.run('binaries.serve', *arguments)
  assert done.returncode == 1
  assert text in done.said[-1]
  assert 'Traceback' not in done.stderr


def test_configuration_of_tensorflow_serving(launcher, workdir):
  program = launcher.run(
    'binaries.serve', f'--workdir={workdir}', '--print_tf_serving_config'
  )
  assert program.returncode == 0, program.stderr
  assert program.stdout.count('docker run') == 1
  assert (workdir / 'tf_serving' / 'models.config').exists()
