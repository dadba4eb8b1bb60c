"""Export of personalized models: all clients in one bundle, or one client.

Signature `serving_default` of the bundle of all clients: `client_id` `[batch]`
string, `x` `[batch, *input_shape]` float32 -> the outputs of
`prediction.name_outputs`. A client that is not in the bundle causes an
InvalidArgument error with the text "unknown client id". The bundle of one
client has the same signature without `client_id`. `raw_signatures` adds those
that take raw columns in place of `x`.
"""

import hashlib
import os
import pathlib
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import (
  client_states,
  dependencies,
  manifest,
  prediction,
  raw_signatures,
  validation,
)

# Number of clients whose models in memory a bundle is compared with.
_MAX_CHECKED_CLIENTS = 16
# Of an id in the name of a file, of at most 255 bytes.
_MAX_ID_BYTES = 240


def client_name(client_id: str) -> str:
  """Returns the name of the folder or file of one client's model.

  It has the id as in URLs; of one that is too long for that, the SHA-256.
  """
  spelled = urllib.parse.quote(client_id, safe='')
  if len(spelled) > _MAX_ID_BYTES:
    spelled = hashlib.sha256(client_id.encode()).hexdigest()
  return f'client_{spelled}'


def export_personalized_models(
  base_dir: str | os.PathLike[str],
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  client_ids: Sequence[str],
  load_states: client_states.LoadStates,
  sample_inputs: np.ndarray,
  provenance: manifest.Provenance,
  features: raw_signatures.Features | None = None,
) -> pathlib.Path:
  """Writes the models of all participating clients as the next version.

  The bundle holds the parts of the states that `personalized_weights` uses,
  the server's as variables and the clients' in a file (`client_states`), and
  evaluates it in the graph.

  Args:
    base_dir: Such as `<workdir>/export/personalized_models`.
    algorithm: Algorithm; defines a client's personalized weights.
    server_state: The state to export, of arrays or tensors.
    client_ids: Ids by client index, distinct and not empty.
    load_states: Loads some clients' states; called for a block of clients at a
      time.
    sample_inputs: `[n, *input_shape]` float32, n >= 1, for comparing the
      bundle's predictions with those of the models in memory.
    provenance: Config, round and dataset version of the states.
    features: The raw data, for signatures that take them.

  Returns:
    The folder `<base_dir>/<version>`.

  Raises:
    ExportError: If the states or sample inputs are invalid, or the predictions
      of the loaded bundle differ. No files are left behind.
    InfrastructureError: If the disk is full or may not be written.
  """
  model = algorithm.personalized_model
  x = validation.check_sample_inputs(model, sample_inputs)
  server_state = tf.nest.map_structure(np.asarray, server_state)
  stored = _StoredStates(algorithm, server_state, load_states, len(client_ids))
  module: Any = tf.Module()
  module.states = list(stored.variables.values())
  module.client_states = stored.clients.asset
  module.client_index = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(
      tf.constant(client_ids),
      tf.range(len(client_ids)),
    ),
    default_value=-1,
  )
  id_spec = tf.TensorSpec([None], tf.string, name='client_id')
  serve = bundle_lib.signature_function(
    lambda client_id, x: _predict(
      model, stored.weights_of, module.client_index, client_id, x
    ),
    id_spec,
    prediction.features_spec(model),
  )
  module.raw = raw_signatures.RawSignatures(
    model,
    features,
    {'serving_default': raw_signatures.Signature(serve, (id_spec,))},
    # An unknown client is refused by the signature that is called then.
    lambda others, _: tf.maximum(
      module.client_index.lookup(others['client_id']), 0
    ),
  )
  first = client_weights(
    algorithm,
    server_state,
    client_states.state_of(load_states, 0),
    0,
  )
  bundle = bundle_lib.Bundle(
    module=module,
    signatures={'serving_default': serve, **module.raw.functions},
    methods=module.raw.methods,
    facts={
      'kind': 'personalized_models',
      'num_clients': len(client_ids),
      **bundle_lib.model_facts(algorithm.name, model),
      **module.raw.facts,
      **stored.clients.facts,
    },
    samples=(
      *_samples(algorithm, server_state, client_ids, load_states, x),
      *module.raw.sample(
        {'client_id': np.array(client_ids[:1], object)}, first
      ),
    ),
    tolerance=model.output_tolerance,
    client_ids=tuple(client_ids),
    assets=stored.clients.assets,
  )
  return bundle_lib.write_bundle(base_dir, bundle, provenance)


def export_client_model(
  base_dir: str | os.PathLike[str],
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  client_id: str,
  client_index: int,
  client_state: algorithm_lib.Structure,
  sample_inputs: np.ndarray,
  provenance: manifest.Provenance,
  features: raw_signatures.Features | None = None,
) -> pathlib.Path:
  """Writes one client's model only; of other clients it has fitted features.

  Args:
    base_dir: Folder for the versions of this client's model.
    algorithm: Algorithm; defines a client's personalized weights.
    server_state: The state to export, of arrays or tensors.
    client_id: For the manifest.
    client_index: The client's position in the population.
    client_state: This client's state, without a leading axis.
    sample_inputs: `[n, *input_shape]` float32, n >= 1.
    provenance: Config, round and dataset version of the states.
    features: The raw data, for signatures that take them, with the statistics
      of this client alone.

  Returns:
    The folder `<base_dir>/<version>`.

  Raises:
    ExportError: As in `export_personalized_models`.
  """
  model = algorithm.personalized_model
  x = validation.check_sample_inputs(model, sample_inputs)
  weights = tf.nest.map_structure(
    np.asarray,
    client_weights(algorithm, server_state, client_state, client_index),
  )
  for value in tf.nest.flatten(weights):
    validation.check_finite(f'weights of client {client_id!r}', value)
  variables = tf.nest.map_structure(bundle_lib.variable, weights)
  module: Any = tf.Module()
  module.weights = tf.nest.flatten(variables)

  def predict(x):
    stored = tf.nest.map_structure(tf.convert_to_tensor, variables)
    return prediction.name_outputs(model, model.apply(stored, x))

  serve = bundle_lib.signature_function(
    predict, prediction.features_spec(model)
  )
  module.raw = raw_signatures.RawSignatures(
    model,
    features,
    {'serving_default': raw_signatures.Signature(serve)},
    lambda _, num_rows: tf.zeros(tf.expand_dims(num_rows, 0), tf.int32),
  )
  bundle = bundle_lib.Bundle(
    module=module,
    signatures={'serving_default': serve, **module.raw.functions},
    methods=module.raw.methods,
    facts={
      'kind': 'client_model',
      'num_clients': 1,
      **bundle_lib.model_facts(algorithm.name, model),
      **module.raw.facts,
    },
    samples=(
      bundle_lib.Sample(
        'serving_default',
        {'x': x},
        bundle_lib.expected_outputs(model, weights, x),
      ),
      *module.raw.sample({}, weights),
    ),
    tolerance=model.output_tolerance,
    client_ids=(client_id,),
  )
  return bundle_lib.write_bundle(base_dir, bundle, provenance)


class _StoredStates:
  """What a bundle holds of the states: the leaves that the models depend on.

  Attributes:
    variables: Leaves of the server state, by their position.
    clients: Leaves of the client states.
  """

  def __init__(
    self,
    algorithm: algorithm_lib.FederatedAlgorithm,
    server_state: algorithm_lib.Structure,
    load_states: client_states.LoadStates,
    num_clients: int,
  ):
    self._algorithm = algorithm
    self._server_state = server_state
    self._client_state = client_states.state_of(load_states, 0)
    used_server, used_clients, _ = dependencies.used_leaves(
      algorithm.personalized_weights,
      server_state,
      self._client_state,
      tf.TensorSpec([], tf.int32),
    )
    self.variables = dependencies.store(server_state, used_server)
    self.clients = client_states.ClientStates(
      [
        tf.TensorSpec(leaf.shape, leaf.dtype)
        for leaf in tf.nest.flatten(self._client_state)
      ],
      np.flatnonzero(tf.nest.flatten(used_clients)).tolist(),
      load_states,
      num_clients,
    )

  def weights_of(self, client_index: tf.Tensor) -> model_lib.Weights:
    """Returns the weights of a client's model, int32 `[]` -> weights."""
    stored = {
      i: tf.convert_to_tensor(variable)
      for i, variable in self.variables.items()
    }
    of_client = self.clients.read(client_index)
    return self._algorithm.personalized_weights(
      dependencies.complete(self._server_state, stored),
      dependencies.complete(self._client_state, of_client),
      client_index,
    )


def _predict(
  model: model_lib.Model,
  weights_of: Callable[[tf.Tensor], model_lib.Weights],
  client_index: tf.lookup.StaticHashTable,
  client_id: tf.Tensor,
  x: tf.Tensor,
) -> Mapping[str, tf.Tensor]:
  indices = client_index.lookup(client_id)
  checks = [
    prediction.require_same_rows('client_id', client_id, x),
    prediction.require_rows(
      indices >= 0,
      lambda row: tf.strings.join(
        [
          f'{manifest.UNKNOWN_CLIENT_TEXT} ',
          prediction.printable(client_id[row]),
          '; this model serves the ',
          tf.strings.as_string(client_index.size()),
          ' clients that took part in training. The model cluster_models '
          'serves others',
        ]
      ),
    ),
  ]
  with tf.control_dependencies(checks):
    indices = tf.identity(indices)
  outputs = prediction.apply_by_group(model, weights_of, indices, x)
  return prediction.name_outputs(model, outputs)


def client_weights(
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  client_state: algorithm_lib.Structure,
  client_index: int,
) -> Any:
  """Returns the weights of a client's personalized model.

  Args:
    algorithm: Defines them.
    server_state: Arrays or tensors.
    client_state: This client's state, without a leading axis.
    client_index: The client's position in the population.
  """
  return algorithm.personalized_weights(
    tf.nest.map_structure(tf.convert_to_tensor, server_state),
    tf.nest.map_structure(tf.convert_to_tensor, client_state),
    tf.constant(client_index, tf.int32),
  )


def _samples(
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  client_ids: Sequence[str],
  load_states: client_states.LoadStates,
  x: np.ndarray,
) -> tuple[bundle_lib.Sample, ...]:
  """Returns one batch for each checked client, and one of all of them."""
  num_checked = min(len(client_ids), _MAX_CHECKED_CLIENTS)
  checked = np.linspace(0, len(client_ids) - 1, num_checked).astype(int)
  samples = []
  for index in checked.tolist():
    state = client_states.state_of(load_states, index)
    weights = client_weights(algorithm, server_state, state, index)
    ids = np.array([client_ids[index]] * len(x), object)
    samples.append(
      bundle_lib.Sample(
        'serving_default',
        {'client_id': ids, 'x': x},
        bundle_lib.expected_outputs(algorithm.personalized_model, weights, x),
      )
    )
  # Rows of different clients alternate: 0, 1, 2, ..., 0, 1, 2, ...
  mixed = {
    field: {
      name: np.stack([getattr(s, field)[name] for s in samples], axis=1)
      for name in getattr(samples[0], field)
    }
    for field in ('inputs', 'outputs')
  }
  samples.append(
    bundle_lib.Sample(
      'serving_default',
      *(
        {name: v.reshape([-1, *v.shape[2:]]) for name, v in named.items()}
        for named in mixed.values()
      ),
    )
  )
  return tuple(samples)
