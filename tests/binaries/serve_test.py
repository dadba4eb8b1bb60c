"""`binaries.serve` as a process."""

import json
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.testing import exportable

REPOSITORY = pathlib.Path(__file__).parents[2]
START_SECONDS = 120


@pytest.fixture(name='workdir', scope='module')
def make_workdir(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('run')
  exportable.write_all(workdir / 'export')
  return workdir


def run_binary(name, *arguments, **options):
  return subprocess.run(
    [sys.executable, '-m', f'binaries.{name}', *arguments],
    cwd=REPOSITORY,
    capture_output=True,
    text=True,
    timeout=START_SECONDS,
    **options,
  )


class Server:
  """A serving process and its REST port; killed at the end, if need be."""

  def __init__(self, workdir, port_file):
    self._port_file = port_file
    self.process = subprocess.Popen(
      [
        *(sys.executable, '-m', 'binaries.serve', f'--workdir={workdir}'),
        *('--rest_api_port=0', '--port=0', f'--port_file={port_file}'),
      ],
      cwd=REPOSITORY,
      stderr=subprocess.PIPE,
      text=True,
    )

  def __enter__(self):
    deadline = time.monotonic() + START_SECONDS
    while not self._port_file.exists():
      assert self.process.poll() is None, self.process.stderr.read()
      assert time.monotonic() < deadline
      time.sleep(0.05)
    ports = json.loads(self._port_file.read_text())
    self.url = f'http://127.0.0.1:{ports["rest_api_port"]}'
    return self

  def __exit__(self, *_):
    self.process.kill()
    self.process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_cleanly(workdir, tmp_path, number):
  port_file = tmp_path / 'ports.json'
  with Server(workdir, port_file) as server:
    asked = run_binary(
      'predict',
      f'--url={server.url}',
      '--model=personalized_models',
      '--instances=[{"client_id": "anna", "x": [1, 2, 3, 4]}]',
    )
    server.process.send_signal(number)
    _, log = server.process.communicate(timeout=30)
  assert asked.returncode == 0, asked.stderr
  (row,) = json.loads(asked.stdout)['predictions']
  _, states = exportable.states(exportable.linear_model())
  logits = exportable.oracle_logits(
    states.personalized_weights, 0, np.float32([1, 2, 3, 4])
  )
  np.testing.assert_allclose(row['logits'], logits, rtol=1e-5)
  assert server.process.returncode == 0
  assert f'. REST API at {server.url}/v1/models, gRPC at 127.0.0.1:' in log
  assert 'Traceback' not in log
  assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_signal_with_an_open_connection(workdir, tmp_path):
  with Server(workdir, tmp_path / 'ports.json') as server:
    port = int(server.url.rsplit(':', 1)[1])
    with socket.create_connection(('127.0.0.1', port)) as idle:
      # A client that never ends its request does not keep the server alive.
      idle.sendall(b'POST /v1/models/anna:predict HTTP/1.1\r\n')
      idle.sendall(b'Host: x\r\nContent-Length: 100\r\n\r\n{')
      time.sleep(0.2)
      server.process.terminate()
      server.process.communicate(timeout=30)
  assert server.process.returncode == 0


@pytest.mark.parametrize(
  ('arguments', 'text'),
  [
    ([], 'give either --workdir or --model_base_path'),
    (['--workdir=a', '--model_base_path=b'], 'give either'),
    (['--workdir=/missing'], 'model folder /missing/export cannot be read'),
  ],
)
def test_mistakes_are_one_line(arguments, text):
  done = run_binary('serve', *arguments)
  assert done.returncode == 1
  assert text in done.stderr.splitlines()[-1]
  assert 'Traceback' not in done.stderr


def test_port_in_use_is_one_line(workdir):
  with socket.create_server(('127.0.0.1', 0)) as other:
    port = other.getsockname()[1]
    done = run_binary(
      'serve', f'--workdir={workdir}', f'--rest_api_port={port}', '--port=0'
    )
  assert done.returncode == 1
  last = done.stderr.splitlines()[-1]
  assert f'port {port} on 127.0.0.1 is in use. Choose another with' in last


def test_port_file_that_cannot_be_written(workdir):
  done = run_binary(
    'serve',
    *(f'--workdir={workdir}', '--rest_api_port=0', '--port=0'),
    '--port_file=/missing/ports.json',
  )
  assert done.returncode == 1
  assert 'cannot be written: No such file' in done.stderr.splitlines()[-1]


def test_help():
  done = run_binary('serve', '--help')
  assert 'python -m binaries.serve' in done.stdout
  assert '--rest_api_port' in done.stdout
