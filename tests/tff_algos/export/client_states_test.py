"""The file of client states, read in a graph."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import exportable
from tff_algos.core import errors
from tff_algos.export import client_states, manifest
from tff_algos.serving import served_model

NUM_CLIENTS = 5
STORED = [0, 2, 3, 4]
X = exportable.sample_inputs()


class State(NamedTuple):
  flag: np.ndarray  # [num_clients, 3] bool
  unused: np.ndarray  # [num_clients, 2], NaN
  kernel: np.ndarray  # [num_clients, 40, 70], larger than what is read at once
  number: np.ndarray  # [num_clients] int64
  nothing: np.ndarray  # [num_clients, 0]


def states():
  rng = np.random.default_rng(7)
  return State(
    rng.integers(0, 2, [NUM_CLIENTS, 3]).astype(bool),
    np.full([NUM_CLIENTS, 2], np.nan, np.float32),
    rng.normal(size=[NUM_CLIENTS, 40, 70]).astype(np.float32),
    rng.integers(-(2**60), 2**60, NUM_CLIENTS),
    np.zeros([NUM_CLIENTS, 0], np.float32),
  )


def save(folder, monkeypatch):
  """Writes a SavedModel that reads the states; two clients a block."""
  values = states()
  specs = [tf.TensorSpec(leaf.shape[1:], leaf.dtype) for leaf in values]
  num_bytes = sum(leaf.nbytes for leaf in values) // NUM_CLIENTS
  monkeypatch.setattr(client_states, '_BLOCK_BYTES', 2 * num_bytes)
  stored = client_states.ClientStates(
    specs, STORED, exportable.loading(values), NUM_CLIENTS
  )
  module = tf.Module()
  module.asset = stored.asset
  signature = tf.function(
    lambda client: {
      f'leaf_{i}': leaf for i, leaf in stored.read(client).items()
    },
    input_signature=[tf.TensorSpec([], tf.int32, 'client')],
    autograph=False,
  )
  tf.saved_model.save(module, str(folder), signatures={'read': signature})
  path = folder / manifest.ASSETS_FOLDER / client_states.FILE
  stored.assets[client_states.FILE](path)
  return path


def test_each_client_reads_its_own_bits(tmp_path, monkeypatch):
  path = save(tmp_path, monkeypatch)
  read = tf.saved_model.load(str(tmp_path)).signatures['read']
  values = states()
  for client in reversed(range(NUM_CLIENTS)):
    leaves = read(client=tf.constant(client))
    assert sorted(leaves) == [f'leaf_{i}' for i in STORED]
    for i in STORED:
      leaf = leaves[f'leaf_{i}'].numpy()
      assert leaf.dtype == values[i].dtype
      np.testing.assert_array_equal(leaf, values[i][client])
  assert path.stat().st_size == NUM_CLIENTS * (3 + 4 * 2800 + 8 + 16)


def test_a_changed_bit_is_an_error_of_its_client_alone(tmp_path, monkeypatch):
  path = save(tmp_path, monkeypatch)
  content = bytearray(path.read_bytes())
  content[2 * len(content) // NUM_CLIENTS + 5000] ^= 4
  path.write_bytes(content)
  read = tf.saved_model.load(str(tmp_path)).signatures['read']
  with pytest.raises(tf.errors.DataLossError, match='corrupted record'):
    read(client=tf.constant(2))
  for client in (1, 3):
    number = read(client=tf.constant(client))['leaf_3']
    assert number == states().number[client]


@pytest.fixture(name='folder')
def write_folder(tmp_path):
  return exportable.export_clients(tmp_path)


def damage(folder, how):
  path = folder / manifest.ASSETS_FOLDER / client_states.FILE
  content = path.read_bytes()
  if how == 'removed':
    path.unlink()
  elif how == 'flipped':
    path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
  else:
    path.write_bytes(content[: {'in a record': 20, 'between': 0}[how]])


def test_a_server_names_what_was_damaged_before_and_after_it_loaded(folder):
  names = {'client_id': np.array(['anna'], object), 'x': X[:1]}
  path = folder / manifest.ASSETS_FOLDER / client_states.FILE
  content = path.read_bytes()
  loaded = served_model.ServedModel('own', 1, folder)
  for how in ('flipped', 'in a record', 'between', 'removed'):
    damage(folder, how)
    with pytest.raises(errors.RequestError, match='state of a client') as seen:
      loaded.predict('serving_default', names)
    assert seen.value.status == 500
    with pytest.raises(errors.ExportError, match=f'{path} .*Export the bundle'):
      served_model.ServedModel('own', 1, folder)
    path.write_bytes(content)
  assert loaded.predict('serving_default', names)
