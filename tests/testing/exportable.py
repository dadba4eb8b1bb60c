"""Tiny algorithms with hand-set states, to export and to serve."""

import errno
import functools
import math
import pathlib
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import carrying
from tff_algos.core import model as model_lib
from tff_algos.export import (
  cluster_models,
  manifest,
  personalized_models,
  raw_signatures,
  versions,
)
from tff_algos.features import spec as spec_lib

NUM_FEATURES = 4
NUM_CLASSES = 3
NUM_CLUSTERS = 2
CLIENT_IDS = ('anna', 'b/2', 'çelik', 'd d')
# As of a CSV file with four plain numbers.
FEATURES = raw_signatures.Features(
  spec_lib.FeatureSpec(
    tuple(spec_lib.Feature(name, encoding='plain') for name in 'abcd'),
    classes=('c0', 'c1', 'c2'),
    label='y',
  )
)
PROVENANCE = manifest.Provenance('0123456789abcdef', 7, 'v3')


class ServerState(NamedTuple):
  cluster_weights: model_lib.Weights  # [num_clusters, ...]
  membership: np.ndarray  # [num_clients, num_clusters]


class ClientState(NamedTuple):
  personalized_weights: model_lib.Weights
  importance: np.ndarray  # [num_clusters]


def linear_model(
  task: str = model_lib.CLASSIFICATION, vectorizes: bool = True
) -> model_lib.Model:
  num_outputs = NUM_CLASSES if task == model_lib.CLASSIFICATION else 1
  shape = [NUM_FEATURES, num_outputs]
  return model_lib.Model(
    name='linear',
    task=task,
    input_shape=(NUM_FEATURES,),
    num_outputs=num_outputs,
    initialize=lambda seed: OrderedDict(
      kernel=tf.random.stateless_normal(shape, seed),
      bias=tf.zeros([num_outputs]),
    ),
    apply=lambda weights, x: x @ weights['kernel'] + weights['bias'],
    vectorizes=vectorizes,
  )


def algorithm(
  model: model_lib.Model, personalized_weights=None
) -> algorithm_lib.FederatedAlgorithm:
  """An algorithm that can be exported; it has no phases to train with."""
  return algorithm_lib.FederatedAlgorithm(
    name='tiny',
    num_clusters=NUM_CLUSTERS,
    init_server_state=lambda seed, num_clients: (),
    init_client_state=lambda run_seed, client_seed: (),
    phases={},
    plan_round=lambda *_: iter(()),
    cluster_model=model,
    cluster_weights=lambda state: state.cluster_weights,
    personalized_model=model,
    personalized_weights=personalized_weights or own_weights,
    membership=lambda state, client_state, i: state.membership[i],
    carry=carrying.Carry(
      {'cluster_weights': carrying.KEEP, 'membership': carrying.CLIENTS}
    ),
  )


def own_weights(server_state, client_state, client_index):
  """As FedSoft: the client's state holds its model."""
  del server_state, client_index
  return client_state.personalized_weights


def mixed_weights(server_state, client_state, client_index):
  """As PPFL: a mixture of shared weights, by the server's membership."""
  del client_state
  shares = tf.gather(server_state.membership, client_index)
  return tf.nest.map_structure(
    lambda leaf: tf.tensordot(shares, leaf, 1), server_state.cluster_weights
  )


def random_weights(
  model: model_lib.Model, leading: int, seed: int
) -> model_lib.Weights:
  rng = np.random.default_rng(seed)
  shapes = OrderedDict(
    kernel=[leading, math.prod(model.input_shape), model.num_outputs],
    bias=[leading, model.num_outputs],
  )
  return OrderedDict(
    (name, rng.normal(size=shape).astype(np.float32))
    for name, shape in shapes.items()
  )


def states(model: model_lib.Model) -> tuple[ServerState, ClientState]:
  """Returns a server state and the stacked client states."""
  rng = np.random.default_rng(3)
  num_clients = len(CLIENT_IDS)
  membership = rng.dirichlet(np.ones(NUM_CLUSTERS), num_clients)
  server_state = ServerState(
    random_weights(model, NUM_CLUSTERS, seed=1), membership.astype(np.float32)
  )
  client_states = ClientState(
    random_weights(model, num_clients, seed=2),
    np.full([num_clients, NUM_CLUSTERS], np.nan, np.float32),
  )
  return server_state, client_states


def loading(client_states: ClientState) -> Callable[[np.ndarray], ClientState]:
  """Returns client indices -> their states, as a client state store has it."""
  return lambda indices: tf.nest.map_structure(
    lambda leaf: leaf[indices], client_states
  )


def sample_inputs(num_rows: int = 5) -> np.ndarray:
  rng = np.random.default_rng(4)
  return rng.normal(size=[num_rows, NUM_FEATURES]).astype(np.float32)


def write_all(folder: pathlib.Path) -> pathlib.Path:
  """Writes the files of `export_all`, which takes seconds; returns the folder."""
  for name, content in _exported_files().items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
  return folder


@functools.cache
def _exported_files() -> dict[str, bytes]:
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    export_all(folder)
    return {
      str(path.relative_to(folder)): path.read_bytes()
      for path in folder.rglob('*')
      if path.is_file()
    }


def export_clusters(
  base: pathlib.Path, model: model_lib.Model | None = None, **changes
) -> pathlib.Path:
  """Exports the cluster models of `states`, but for changed arguments."""
  model = model or linear_model()
  arguments = {
    'algorithm': algorithm(model),
    'server_state': states(model)[0],
    'sample_inputs': sample_inputs(),
    'provenance': PROVENANCE,
    **changes,
  }
  return cluster_models.export_cluster_models(base, **arguments)


def client_arguments(model: model_lib.Model, **changes):
  """Returns arguments of an export of the clients' models of `states`."""
  server_state, client_states = states(model)
  return {
    'algorithm': algorithm(model),
    'server_state': server_state,
    'client_ids': CLIENT_IDS,
    'load_states': loading(client_states),
    'sample_inputs': sample_inputs(),
    'provenance': PROVENANCE,
    **changes,
  }


def export_clients(
  base: pathlib.Path, model: model_lib.Model | None = None, **changes
) -> pathlib.Path:
  """Exports the clients' models of `states`, but for changed arguments."""
  arguments = client_arguments(model or linear_model(), **changes)
  return personalized_models.export_personalized_models(base, **arguments)


def export_all(folder: pathlib.Path) -> None:
  """Exports every kind of bundle under a folder, as a run does."""
  export_clusters(folder / 'cluster_models', features=FEATURES)
  export_clients(folder / 'personalized_models', features=FEATURES)
  model = linear_model()
  server_state, client_states = states(model)
  personalized_models.export_client_model(
    folder / 'anna',
    algorithm(model),
    server_state,
    CLIENT_IDS[0],
    0,
    tf.nest.map_structure(lambda leaf: leaf[0], client_states),
    sample_inputs(),
    PROVENANCE,
    FEATURES,
  )


def oracle_logits(weights, index: int, x: np.ndarray) -> np.ndarray:
  """NumPy's own linear model with the weights of one cluster or client."""
  return x @ weights['kernel'][index] + weights['bias'][index]


def softmax(logits: np.ndarray) -> np.ndarray:
  exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
  return exponentials / exponentials.sum(axis=-1, keepdims=True)


def hide_versions(monkeypatch, name: str) -> None:
  """Lets nobody list a model's folder, as of a volume's lost+found."""
  original = versions.version_folders

  def version_folders(folder):
    if folder.name == name:
      raise PermissionError(errno.EACCES, 'Permission denied')
    return original(folder)

  monkeypatch.setattr(versions, 'version_folders', version_folders)
