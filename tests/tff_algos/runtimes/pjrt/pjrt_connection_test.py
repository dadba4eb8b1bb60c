import errno
import os
import pathlib
import signal
import sys

import numpy as np
import psutil
import pytest

from tests.testing import accelerator
from tff_algos.core import errors
from tff_algos.runtimes.pjrt import pjrt_config, pjrt_connection
from tff_algos.runtimes.pjrt.worker import frames


def _connection(**options):
  return pjrt_connection.Connection(pjrt_config.PjrtConfig(**options))


def _script(tmp_path, text):
  path = tmp_path / 'python'
  path.write_text(f'#!/bin/sh\n{text}\n')
  path.chmod(0o755)
  return str(path)


def test_without_the_environment_the_error_says_how_to_make_it(tmp_path):
  with (
    pytest.raises(errors.ConfigError, match='make env-accelerator'),
    _connection(python=str(tmp_path / 'nothing')),
  ):
    pass


@pytest.mark.parametrize('name', ['file', 'file/folder'])
def test_a_cache_that_is_no_folder_is_refused(name, tmp_path):
  (tmp_path / 'file').touch()
  python = _script(tmp_path, 'exit 4')
  with (
    pytest.raises(errors.ConfigError, match=r'runtime\.pjrt\.cache'),
    _connection(python=python, cache=str(tmp_path / name)),
  ):
    pass


def test_a_worker_that_cannot_start_is_quoted(tmp_path):
  python = _script(tmp_path, 'echo no jax here; exit 4')
  with (
    pytest.raises(
      errors.RuntimeFailureError, match='(?s)exit code 4.*no jax here'
    ),
    _connection(python=python),
  ):
    pass


def test_a_silent_worker_is_given_up_and_ended(tmp_path):
  before = set(psutil.Process().children())
  python = _script(tmp_path, 'exec sleep 60')
  with (
    pytest.raises(errors.LostProcessError, match='within 0.5 s'),
    _connection(python=python, start_timeout_seconds=0.5),
  ):
    pass
  assert not set(psutil.Process().children()) - before


# Instead of a worker with jax: answers each request by its own name.
_ECHO = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(frames.__file__).parent)!r})
import frames, socket
connection = socket.socket(fileno=int(sys.argv[3]))
while (message := frames.receive(connection)) is not None:
  device = dict(name='CPU:0', chosen=1, kind='', platform='cpu', bytes=1)
  name = message[0].get('name')
  frames.send(connection, dict(devices=[device], jax='', name=name))
"""


@pytest.fixture
def echo(tmp_path):
  """A connection to a worker without jax."""
  program = tmp_path / 'echo.py'
  program.write_text(_ECHO)
  python = _script(tmp_path, f'exec {sys.executable} {program} "$@"')
  with _connection(python=python, cache=str(tmp_path)) as connection:
    yield connection


def test_no_request_gets_the_answer_to_an_interrupted_one(echo, monkeypatch):
  assert echo.request('fetch', name='a')[0]['name'] == 'a'

  def interrupt(unused_connection):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(frames, 'receive', interrupt)
    with pytest.raises(KeyboardInterrupt):
      echo.request('fetch', name='a')
  assert not echo.is_open
  with pytest.raises(errors.RuntimeFailureError):
    echo.request('fetch', name='b')


def test_a_lack_of_descriptors_here_is_told(echo, monkeypatch):
  def refuse(unused_name):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

  monkeypatch.setattr(os, 'memfd_create', refuse)
  with pytest.raises(errors.LostProcessError, match='Too many open files'):
    echo.keep('row', [np.zeros(3)])


def test_a_lack_of_memory_on_the_device_says_what_to_lower(echo, monkeypatch):
  told = 'JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory, 15.03GiB'
  monkeypatch.setattr(
    frames, 'receive', lambda connection: ({'error': told}, [])
  )
  with pytest.raises(
    errors.RuntimeFailureError,
    match=r'(?s)15\.03GiB.*lower .*clients_per_block',
  ):
    echo.request('hello')


@accelerator.needed
def test_a_killed_worker_is_an_error_and_nothing_is_left():
  with _connection() as connection:
    pid = connection._process.pid
    assert connection.platform == 'cpu'
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(errors.LostProcessError, match='SIGKILL'):
      connection.keep('row', [np.zeros(3)])
  assert not psutil.pid_exists(pid)
