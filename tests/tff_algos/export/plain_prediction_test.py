"""Bundles in a process with TensorFlow alone."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable
from tff_algos.export import client_states, manifest, plain_prediction

NAN = np.float32(np.nan).tobytes()


@pytest.fixture(name='export', scope='module')
def make_export(tmp_path_factory):
  return exportable.write_all(tmp_path_factory.mktemp('export'))


def _ask(*arguments):
  return subprocess.run(
    [
      *(sys.executable, '-P', plain_prediction.__file__),
      *(str(argument) for argument in arguments),
    ],
    capture_output=True,
    text=True,
    check=False,
  )


@pytest.mark.slow
def test_answers_of_each_bundle_in_order(export, tmp_path):
  x = exportable.sample_inputs()
  np.savez(tmp_path / 'sound', x=x, client_id=np.array(['çelik'] * len(x)))
  np.savez(tmp_path / 'nan', x=np.nan * x, cluster_id=np.zeros(5, np.int32))
  asked = _ask(
    *(export / 'personalized_models' / '1', tmp_path / 'sound.npz'),
    *(export / 'cluster_models' / '1', tmp_path / 'nan.npz'),
  )
  assert asked.returncode == 0, asked.stderr
  sound, nan = json.loads(asked.stdout)
  assert 0 < sound.pop('seconds') < 60
  assert sound == {'finite_weights': True, 'finite_outputs': True}
  assert nan['finite_weights'] and not nan['finite_outputs']


def test_weights_that_are_not_finite(export, tmp_path, monkeypatch):
  """In this process, with a reader that finds them."""
  load = plain_prediction.tf.train.load_checkpoint

  class Reader:
    def __init__(self, path):
      self._reader = load(path)
      self.get_variable_to_dtype_map = self._reader.get_variable_to_dtype_map

    def get_tensor(self, name):
      return self._reader.get_tensor(name) + np.float32(np.inf)

  monkeypatch.setattr(plain_prediction.tf.train, 'load_checkpoint', Reader)
  np.savez(
    tmp_path / 'inputs',
    x=exportable.sample_inputs(),
    cluster_id=np.zeros(5, np.int32),
  )
  answer = plain_prediction._check(
    str(export / 'cluster_models' / '1'), str(tmp_path / 'inputs.npz')
  )
  assert not answer['finite_weights'] and answer['finite_outputs']


def test_client_states_that_are_not_finite(export, tmp_path):
  bundle = tmp_path / 'bundle'
  shutil.copytree(export / 'personalized_models' / '1', bundle)
  path = bundle / manifest.ASSETS_FOLDER / client_states.FILE
  records = [one.numpy() for one in tf.data.TFRecordDataset(str(path))]
  with tf.io.TFRecordWriter(str(path)) as writer:
    for record in [*records[:-1], records[-1][:-4] + NAN]:
      writer.write(record)
  x = exportable.sample_inputs()
  # Its last client is asked for by nobody.
  np.savez(tmp_path / 'inputs', x=x, client_id=np.array(['anna'] * len(x)))
  answer = plain_prediction._check(str(bundle), str(tmp_path / 'inputs.npz'))
  assert not answer['finite_weights'] and answer['finite_outputs']


@pytest.mark.slow
@pytest.mark.verify
def test_bundle_that_does_not_load(tmp_path):
  asked = _ask(tmp_path, tmp_path / 'inputs.npz')
  assert asked.returncode == 1 and not asked.stdout


def test_an_installation_without_tensorflow_is_no_fault_of_a_bundle(
  tmp_path, monkeypatch
):
  (tmp_path / 'tensorflow.py').write_text('import no_such_module')
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  asked = _ask(tmp_path, tmp_path / 'inputs.npz')
  assert asked.returncode == 75 and 'no_such_module' in asked.stderr
