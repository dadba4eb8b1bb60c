"""Failures; `run_test.py` sees it succeed."""

import contextlib
import shutil
import socket
import subprocess
import sys

import numpy as np
import psutil
import pytest

from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.experiments import served_prediction
from tff_algos.features import spec


def _children() -> set[int]:
  return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.slow
def test_no_model_to_serve(digits_dataset):
  before = _children()
  with (
    pytest.raises(
      errors.UserError, match='(?s)server did not start.*model folder'
    ),
    served_prediction.asking(digits_dataset) as ask,
  ):
    ask()
  assert _children() == before
  assert not (digits_dataset / 'export').exists()


@pytest.mark.verify
def test_server_that_knows_no_such_model(finished_run, tmp_path):
  """The request fails; the server ends all the same."""
  shutil.copytree(finished_run.folder / 'dataset', tmp_path / 'dataset')
  shutil.copytree(
    finished_run.folder / 'export' / 'cluster_models',
    tmp_path / 'export' / 'cluster_models',
  )
  before = _children()
  with (
    pytest.raises(errors.UserError, match='answers 404'),
    served_prediction.asking(tmp_path) as ask,
  ):
    ask()
  assert _children() == before


_OWNER = """
import time
from tff_algos.experiments import served_prediction
with served_prediction._server('nowhere'):
  print('started', flush=True)
  time.sleep(60)
"""


@pytest.mark.slow
def test_the_server_of_a_killed_process_ends():
  owner = subprocess.Popen(
    [sys.executable, '-c', _OWNER], stdout=subprocess.PIPE
  )
  with owner:
    assert owner.stdout.readline() == b'started\n'
    (server,) = psutil.Process(owner.pid).children()
    owner.kill()
  # Without models it would end by itself, but not before TensorFlow is there.
  _, alive = psutil.wait_procs([server], timeout=1)
  states = [one.status() for one in alive]
  for one in alive:
    one.kill()
  assert set(states) <= {psutil.STATUS_ZOMBIE}


def test_a_server_that_does_not_answer(monkeypatch):
  monkeypatch.setattr(served_prediction, '_START_SECONDS', 0.01)
  with (
    socket.create_server(('127.0.0.1', 0)) as silent,
    pytest.raises(errors.InfrastructureError, match=r'within 0.01 seconds'),
  ):
    served_prediction._request(
      f'http://127.0.0.1:{silent.getsockname()[1]}', {'x': 1}
    )


def test_a_server_that_has_ended():
  with socket.create_server(('127.0.0.1', 0)) as closed:
    port = closed.getsockname()[1]
  with pytest.raises(
    errors.InfrastructureError, match='or has ended .*refused'
  ):
    served_prediction._request(f'http://127.0.0.1:{port}', {'x': 1})


class _Dataset:
  """Stands for a dataset: client -> examples of its splits."""

  feature_spec = spec.FeatureSpec((spec.Feature('a'),), classes=('no', 'yes'))

  def __init__(self, **clients):
    self._clients = clients
    self.client_ids = [*clients]

  def examples(self, client_id, split):
    x = np.array(self._clients[client_id].get(split, []), np.float32)
    return schema.Examples(x, np.ones(len(x), np.int32), None)


@pytest.mark.parametrize(
  ('clients', 'asked'),
  [
    ({'ann': {'train': [1], 'test': [2, 3]}}, {'client_id': 'ann', 'x': 2}),
    (
      {'ann': {'train': [1]}, 'bob': {'test': [4]}},
      {'client_id': 'ann', 'x': 1},
    ),
    ({'ann': {}, 'bob': {'train': [4]}}, {'client_id': 'bob', 'x': 4}),
    ({'ann': {}}, None),
  ],
)
def test_the_first_client_with_examples_is_asked_for(
  clients, asked, monkeypatch
):
  requests = []

  def request(url, instance):
    requests.append((url, instance))
    return 0

  dataset = contextlib.nullcontext(_Dataset(**clients))
  monkeypatch.setattr(
    served_prediction.experiment, 'open_dataset', lambda folder: dataset
  )
  monkeypatch.setattr(
    served_prediction,
    '_server',
    lambda folder: contextlib.nullcontext(lambda: 'url'),
  )
  monkeypatch.setattr(served_prediction, '_request', request)
  with served_prediction.asking('run') as ask:
    said = ask()
  if asked is None:
    assert said.startswith('No client has a test or training example')
    assert not requests
  else:
    assert requests == [('url', asked)]
    assert f'model of client {asked["client_id"]} says no' in said


@pytest.mark.parametrize(
  ('value', 'classes', 'expected'),
  [
    (1, ('no', 'yes'), 'yes'),
    (1, (), '1'),
    (20.25, (), '20.25'),
    (None, (), 'no finite number'),
    ([1, 0], ('a', 'b'), 'b a'),
    ([3, 12], (), '3 12'),
  ],
)
def test_labels_in_words(value, classes, expected):
  assert served_prediction.spell(value, classes) == expected
