"""`binaries.load_test` as a process, over a server in this one."""

import re

import pytest
from matplotlib import image

from tests.testing import exportable
from tff_algos.serving import models, server, server_config

ARGUMENTS = ('--model=anna', '--instances=[[1, 2, 3, 4]]')


@pytest.fixture(name='ports', scope='module')
def make_ports(tmp_path_factory):
  folder = tmp_path_factory.mktemp('export')
  exportable.write_all(folder)
  config = server_config.ServerConfig(rest_api_port=0, port=0)
  with server.running(models.ModelStore(folder), config) as ports:
    yield ports


@pytest.mark.verify
@pytest.mark.parametrize('scheme', ['http', 'grpc'])
def test_percentiles_and_picture(launcher, ports, scheme, tmp_path):
  port = ports.rest_api_port if scheme == 'http' else ports.port
  path = tmp_path / 'picture.png'
  program = launcher.run(
    'binaries.load_test',
    *(f'--url={scheme}://127.0.0.1:{port}', *ARGUMENTS, '--concurrency=2'),
    *('--max_requests=40', '--seconds=60', f'--out={path}'),
  )
  assert program.returncode == 0, program.stderr
  first, second, last = program.stdout.splitlines()
  assert f'{scheme}://127.0.0.1:{port}: 2 clients, 40 answers in ' in first
  numbers = r'p50 \S+ ms  p90 \S+ ms  p99 \S+ ms  p99.9 \S+ ms  max \S+ ms'
  assert re.fullmatch(numbers, second)
  assert last == f'The picture is {path}.'
  assert image.imread(path).shape == (585, 1500, 4)
  assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
  ('arguments', 'text'),
  [
    (['--url=http://192.0.2.1'], '192.0.2.1 is another machine.*--is_mine'),
    (['--url=grpcs://example.org'], 'example.org is another machine'),
    (['--url=ftp://localhost'], 'must start with'),
    (['--out=/missing/a.png'], 'there is no folder /missing'),
    (['--url=http://127.0.0.1:1'], 'gives no answer: ConnectionRefusedError'),
  ],
)
def test_mistakes_are_one_line(launcher, arguments, text):
  program = launcher.run('binaries.load_test', *ARGUMENTS, *arguments)
  assert program.returncode == 1
  assert re.search(text, program.stderr.splitlines()[-1])
  assert 'Traceback' not in program.stderr
