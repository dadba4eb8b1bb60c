"""The process of large requests: its answers, its death, its end."""

import multiprocessing
import os
import shutil
import signal
import threading
import time
import types

import orjson
import psutil
import pytest

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.export import labels
from tff_algos.serving import (
  access,
  batching,
  bulk,
  models,
  rest,
  served_model,
  server_config,
)

CONFIG = server_config.ServerConfig()
X = exportable.sample_inputs(300).tolist()


@pytest.fixture(name='process', scope='module')
def make_process(export_folder):
  process = bulk.BulkProcess(export_folder, answer_seconds=60)
  yield process
  # After SIGKILL of the server only the pipe tells of its end.
  process._pipe.close()
  assert process._process.wait(60) == 0
  process.close()
  with pytest.raises(errors.RequestError, match='the server stops'):
    process.call(models.ModelStore(export_folder), rest.answer)


def predict(process, content, name='anna', store=None):
  body = orjson.dumps(content)
  store = store or models.ModelStore('seen')
  return process.call(
    store, rest.answer, CONFIG, 'predict', {'name': name}, body
  )


def _handle(folder, answer_seconds):
  """Returns a handle, the other end of its pipe, and what was killed."""
  handle = bulk.BulkProcess(folder, answer_seconds)
  killed = []
  handle._process = types.SimpleNamespace(
    poll=lambda: None,
    kill=lambda: killed.append('killed'),
    wait=lambda: None,
  )
  handle._pipe, theirs = multiprocessing.Pipe()
  return handle, theirs, killed


def test_what_the_server_has_verified_is_not_read_again(
  export_folder, tmp_path, monkeypatch
):
  """Not in a process of its own, but by a thread."""
  folder = tmp_path / 'export'
  shutil.copytree(export_folder / 'anna', folder / 'anna')
  store = models.ModelStore(folder)
  handle, theirs, _ = _handle(folder, 60)
  worker = threading.Thread(
    target=bulk.work, args=(theirs, models.ModelStore(folder))
  )
  worker.start()
  store.load_newest()
  ids = folder / 'anna' / '1' / 'assets.extra' / 'client_ids.json'
  ids.write_text(ids.read_text() + ' ')
  with pytest.raises(errors.RequestError, match='has changed since'):
    predict(handle, {'instances': X}, store=models.ModelStore(folder))
  monkeypatch.setattr(models, '_RETRY_SECONDS', 0)
  assert b'predictions' in predict(handle, {'instances': X}, store=store)
  handle._pipe.close()
  worker.join()


def _answer_late(store):
  del store
  time.sleep(0.3)


def _loaded_version(store):
  return b'%d' % store.get('anna').version


def test_start_and_loading_are_not_part_of_the_time_of_an_answer(
  tmp_path, monkeypatch
):
  """Else a slow process would be killed by each call, and never be ready."""

  def load(store, name, version, folder):
    time.sleep(1)
    return types.SimpleNamespace(name=name, version=version)

  monkeypatch.setattr(models.ModelStore, '_load', load)
  (tmp_path / 'anna' / '1').mkdir(parents=True)
  handle, theirs, killed = _handle(tmp_path, 0.3)
  handle._started = time.monotonic()
  store = models.ModelStore('seen')
  with pytest.raises(errors.RequestError, match='is being started') as error:
    handle.call(store, _loaded_version)
  assert error.value.status == 503
  worker = threading.Thread(
    target=bulk.work, args=(theirs, bulk._ModelStore(tmp_path, theirs))
  )
  worker.start()
  assert handle.call(store, _loaded_version) == b'1'
  assert not killed
  handle._pipe.close()
  worker.join()


def test_the_version_is_that_of_the_server(tmp_path, monkeypatch):
  """Which has yet to load the newest one, or cannot."""

  def load(store, name, version, folder):
    return types.SimpleNamespace(name=name, version=version)

  monkeypatch.setattr(models.ModelStore, '_load', load)
  for version in (1, 2, 3):
    folder = tmp_path / 'anna' / str(version)
    folder.mkdir(parents=True)
    (folder / 'saved_model.pb').touch()
  ours, _ = multiprocessing.Pipe()
  store = bulk._ModelStore(str(tmp_path), ours)

  def answering(served, version=None):
    identities = [
      served_model.folder_identity(tmp_path / 'anna' / str(one))
      for one in served
    ]
    seen = store.seen_by(access.Caller(), {}, identities)
    return seen.get('anna', version).version

  assert answering([1]) == 1
  assert answering([1, 2]) == 2
  assert answering([1], version=3) == 3
  assert answering([]) == 3


@pytest.mark.slow
def test_answers_are_those_of_the_server(process, export_folder):
  store = models.ModelStore(export_folder)
  body = orjson.dumps({'instances': X})
  question = rest.answer(store, CONFIG, 'predict', {'name': 'anna'}, body)
  expected = batching.finish(question)
  seen = models.ModelStore('seen')
  assert predict(process, {'instances': X}, store=seen) == expected
  assert seen.version == 1
  assert len(orjson.loads(expected)['predictions']) == 300


@pytest.mark.slow
def test_refusals_keep_their_status(process):
  with pytest.raises(errors.RequestError, match="unknown model 'bob'") as error:
    predict(process, {}, name='bob')
  assert error.value.status == 404
  seen = models.ModelStore('seen')
  with pytest.raises(errors.RequestError, match='must have either') as error:
    predict(process, {}, store=seen)
  assert error.value.status == 400
  assert seen.version == 1


@pytest.mark.slow
def test_restricted_to_a_client(process):
  store = models.ModelStore('seen')
  body = orjson.dumps({'instances': X})
  arguments = (rest.answer, CONFIG, 'predict', {'name': 'anna'}, body)
  with pytest.raises(errors.RequestError, match="unknown model 'anna'"):
    process.call(store.seen_by(access.Caller(client_id='b/2')), *arguments)
  for_anna = store.seen_by(access.Caller(client_id='anna'))
  assert process.call(for_anna, *arguments) == process.call(store, *arguments)


@pytest.mark.slow
def test_labels_are_those_of_the_server(process):
  seen = models.ModelStore('seen')
  body = orjson.dumps({'instances': X})
  arguments = (rest.answer, CONFIG, 'predict')
  path = {'name': 'anna', 'label': 'stable'}
  with pytest.raises(errors.RequestError, match="no label 'stable'"):
    process.call(seen, *arguments, path, body)
  seen.labels = {'anna': labels.Labels({'stable': 1})}
  process.call(seen, *arguments, path, body)
  assert seen.version == 1


@pytest.mark.slow
def test_low_priority(process):
  predict(process, {'instances': X})
  nice = psutil.Process(process._process.pid).nice()
  assert nice == psutil.Process().nice() + 10


@pytest.mark.slow
def test_killed_process_is_started_again(process):
  predict(process, {'instances': X})
  pid = process._process.pid
  os.kill(pid, signal.SIGSTOP)
  killed = threading.Timer(1, os.kill, (pid, signal.SIGKILL))
  killed.start()
  with pytest.raises(errors.RequestError, match='ended, perhaps') as error:
    predict(process, {'instances': X})
  assert error.value.status == 503
  assert not psutil.pid_exists(pid)
  predict(process, {'instances': X})
  pids = {pid, process._process.pid}
  # One that died before costs no request.
  process._process.kill()
  psutil.wait_procs([psutil.Process(process._process.pid)], 20)
  predict(process, {'instances': X})
  assert len(pids | {process._process.pid}) == 3


def test_time_limit(tmp_path):
  handle, theirs, killed = _handle(tmp_path, 0.1)
  worker = threading.Thread(
    target=bulk.work, args=(theirs, models.ModelStore(tmp_path))
  )
  worker.start()
  with pytest.raises(errors.RequestError, match='within 0.1 sec') as error:
    handle.call(models.ModelStore('seen'), _answer_late)
  assert error.value.status == 503
  assert killed == ['killed'] and handle._process is None
  worker.join()


def test_removed_versions_are_freed(export_folder, tmp_path):
  """By the next call, of whichever model."""
  folder = shutil.copytree(export_folder, tmp_path / 'export')
  handle, theirs, _ = _handle(folder, 60)
  store = models.ModelStore(folder)
  worker = threading.Thread(target=bulk.work, args=(theirs, store), daemon=True)
  worker.start()
  predict(handle, {'instances': X})
  assert store.newest_loaded() == {'anna': 1}
  shutil.rmtree(folder / 'anna')
  with pytest.raises(errors.RequestError, match="unknown model 'bob'"):
    predict(handle, {}, name='bob')
  assert store.newest_loaded() == {}
  handle._pipe.close()
  worker.join()


@pytest.fixture(name='asleep')
def make_asleep(tmp_path, monkeypatch):
  """A handle whose process sleeps: it reads nothing, and says nothing."""
  program = tmp_path / 'sleep'
  program.write_text('#!/bin/sh\nexec sleep 600\n')
  program.chmod(0o700)
  monkeypatch.setattr(bulk.sys, 'executable', str(program))
  process = bulk.BulkProcess(tmp_path, answer_seconds=0.2)
  process._start()
  process._is_ready = True
  yield process
  process.close()


def test_a_process_that_does_not_read_is_killed(asleep):
  """The request is larger than what the system holds for it."""
  pid = asleep._process.pid
  late = threading.Timer(20, os.kill, (pid, signal.SIGKILL))
  late.start()
  try:
    with pytest.raises(errors.RequestError, match='within 0.2 sec') as error:
      asleep.call(models.ModelStore('seen'), _answer_late, bytes(10**7))
    assert error.value.status == 503
    assert not psutil.pid_exists(pid)
  finally:
    late.cancel()


def test_closing_ends_a_process_at_work(asleep):
  pid = asleep._process.pid
  assert psutil.pid_exists(pid)
  asleep.close()
  assert not psutil.pid_exists(pid)
