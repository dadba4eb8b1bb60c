"""Export of personalized models: all clients in one bundle, or one client.

Signature `serving_default` of the bundle of all clients: `client_id` `[batch]`
string, `x` `[batch, *input_shape]` float32 -> the outputs of
`prediction.name_outputs`. A client that is not in the bundle causes an
InvalidArgument error with the text "unknown client id". The bundle of one
client has the same signature without `client_id`. `raw_signatures` adds those
that take raw columns in place of `x`.
"""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import (
  dependencies,
  manifest,
  prediction,
  raw_signatures,
  validation,
)

# Number of clients whose models in memory a bundle is compared with.
_MAX_CHECKED_CLIENTS = 16

# Client states that are loaded at a time.
_BLOCK_BYTES = 1 << 26

# Client indices int32 `[n]` -> their states, a structure of `[n, ...]`; `()` if
# clients keep none.
LoadStates = Callable[[np.ndarray], algorithm_lib.Structure]
_WeightsOf = Callable[[tf.Tensor], model_lib.Weights]


def export_personalized_models(
  base_dir: str | os.PathLike[str],
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  client_ids: Sequence[str],
  load_states: LoadStates,
  sample_inputs: np.ndarray,
  provenance: manifest.Provenance,
  features: raw_signatures.Features | None = None,
) -> pathlib.Path:
  """Writes the models of all participating clients as the next version.

  The bundle holds the parts of the states that `personalized_weights` uses,
  the server's once and the clients' stacked, and evaluates it in the graph.

  Args:
    base_dir: Such as `<workdir>/export/personalized_models`.
    algorithm: Algorithm; defines a client's personalized weights.
    server_state: The state to export, of arrays or tensors.
    client_ids: Ids by client index, distinct.
    load_states: Loads some clients' states; called for a block of clients at a
      time, so that the bundle's variables alone hold all of them.
    sample_inputs: `[n, *input_shape]` float32, n >= 1, for comparing the
      bundle's predictions with those of the models in memory.
    provenance: Config, round and dataset version of the states.
    features: The raw data, for signatures that take them.

  Returns:
    The folder `<base_dir>/<version>`.

  Raises:
    ExportError: If the states, ids or sample inputs are invalid, the folder
      cannot be written, or the predictions of the loaded bundle differ. No
      files are left behind.
  """
  model = algorithm.personalized_model
  x = validation.check_sample_inputs(model, sample_inputs)
  validation.check_client_ids(client_ids)
  server_state = tf.nest.map_structure(np.asarray, server_state)
  variables, weights_of = _stored_weights(
    algorithm, server_state, load_states, len(client_ids)
  )
  module: Any = tf.Module()
  module.states = variables
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
      model, weights_of, module.client_index, client_id, x
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
    state_of(load_states, 0),
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
    },
    samples=(
      *_samples(algorithm, server_state, client_ids, load_states, x),
      *module.raw.sample(
        {'client_id': np.array(client_ids[:1], object)}, first
      ),
    ),
    tolerance=model.output_tolerance,
    client_ids=tuple(client_ids),
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
  """Writes one client's model only, without data of other clients.

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
  validation.check_client_ids([client_id])
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


def _stored_weights(
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  load_states: LoadStates,
  num_clients: int,
) -> tuple[list[tf.Variable], _WeightsOf]:
  """Returns variables for the used leaves, and client index -> weights."""
  server_leaves = tf.nest.flatten(server_state)
  client_state = state_of(load_states, 0)
  client_leaves = tf.nest.flatten(client_state)
  num_server = len(server_leaves)

  def weights_of_leaves(*leaves_and_index: tf.Tensor) -> model_lib.Weights:
    *leaves, index = leaves_and_index
    return algorithm.personalized_weights(
      tf.nest.pack_sequence_as(server_state, leaves[:num_server]),
      tf.nest.pack_sequence_as(client_state, leaves[num_server:]),
      index,
    )

  specs = [tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in server_leaves]
  specs += [tf.TensorSpec(leaf.shape, leaf.dtype) for leaf in client_leaves]
  *used, _ = dependencies.used_leaves(
    weights_of_leaves, *specs, tf.TensorSpec([], tf.int32)
  )
  variables = {}
  for i, spec in enumerate(specs):
    if used[i] and i < num_server:
      validation.check_finite('an array of the server state', server_leaves[i])
      variables[i] = bundle_lib.variable(server_leaves[i])
    elif used[i]:
      zeros = tf.zeros([num_clients, *spec.shape], spec.dtype)
      variables[i] = bundle_lib.variable(zeros)
  num_bytes = sum(leaf.nbytes for leaf in client_leaves)
  block = max(1, _BLOCK_BYTES // max(1, num_bytes))
  stored = [i for i in variables if i >= num_server]
  for start in range(0, num_clients if stored else 0, block):
    stop = min(start + block, num_clients)
    states = tf.nest.flatten(load_states(np.arange(start, stop)))
    for i in stored:
      values = np.asarray(states[i - num_server])
      validation.check_leading_axis('client states', values, stop - start)
      validation.check_finite('an array of the client states', values)
      variables[i][start:stop].assign(values)

  def leaf_of_client(i: int, client_index: tf.Tensor) -> tf.Tensor:
    if i not in variables:
      return tf.zeros(specs[i].shape, specs[i].dtype)
    if i < num_server:
      return tf.convert_to_tensor(variables[i])
    return tf.gather(variables[i], client_index)

  def weights_of(client_index: tf.Tensor) -> model_lib.Weights:
    leaves = [leaf_of_client(i, client_index) for i in range(len(specs))]
    return weights_of_leaves(*leaves, client_index)

  return list(variables.values()), weights_of


def _predict(
  model: model_lib.Model,
  weights_of: _WeightsOf,
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


def state_of(
  load_states: LoadStates, client_index: int
) -> algorithm_lib.Structure:
  """Returns the state of one client, NumPy."""
  return tf.nest.map_structure(
    lambda leaf: np.asarray(leaf)[0], load_states(np.array([client_index]))
  )


def _samples(
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  client_ids: Sequence[str],
  load_states: LoadStates,
  x: np.ndarray,
) -> tuple[bundle_lib.Sample, ...]:
  """Returns one batch for each checked client, and one of all of them."""
  num_checked = min(len(client_ids), _MAX_CHECKED_CLIENTS)
  checked = np.linspace(0, len(client_ids) - 1, num_checked).astype(int)
  samples = []
  for index in checked.tolist():
    state = state_of(load_states, index)
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
