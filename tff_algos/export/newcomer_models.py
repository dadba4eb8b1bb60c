"""Personalized model of a new client with a given membership.

For algorithms that mix models by memberships: the bundle of the cluster models
then serves, for any membership, the model that evaluation scored for clients
with this membership.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import dependencies, prediction

_Outputs = Mapping[str, tf.Tensor]


class Stored(NamedTuple):
  """Variables and function of the personalized models of memberships.

  Attributes:
    variables: Variables that the bundle does not hold already.
    predict: (x `[batch, *input_shape]`, memberships `[batch, num_clusters]`
      float32) -> `probabilities` and `class_id`, or `prediction`; None if the
      algorithm does not define a model of a membership.
  """

  variables: Sequence[tf.Variable]
  predict: Callable[[tf.Tensor, tf.Tensor], _Outputs] | None


def store(
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  stored: Sequence[tuple[np.ndarray, tf.Variable]],
) -> Stored:
  """Returns the personalized models of memberships.

  Args:
    algorithm: Algorithm; defines the model of a membership.
    server_state: Server state, of arrays.
    stored: Arrays that the bundle stores already, with their variables, which
      are reused.

  Raises:
    ExportError: If an array to be stored is not finite.
  """
  newcomers = algorithm.newcomers
  if not newcomers:
    return Stored((), None)
  membership = tf.TensorSpec([algorithm.num_clusters], tf.float32)
  is_used, _ = dependencies.used_leaves(
    newcomers.weights, server_state, membership
  )
  variables = dependencies.store(server_state, is_used, stored)
  held = {id(variable) for _, variable in stored}

  def weights_of(membership: tf.Tensor) -> Any:
    state = dependencies.complete(server_state, variables)
    return newcomers.weights(state, membership)

  model = algorithm.personalized_model
  return Stored(
    [one for one in variables.values() if id(one) not in held],
    lambda x, rows: _predict(model, weights_of, x, rows),
  )


def samples(
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  x: np.ndarray,
) -> tuple[bundle_lib.Sample, ...]:
  """Returns samples of `predict_mixture` at equal membership of all clusters.

  Args:
    algorithm: The algorithm.
    server_state: Server state, of arrays.
    x: `[n, *input_shape]`.
  """
  newcomers = algorithm.newcomers
  if not newcomers:
    return ()
  count = algorithm.num_clusters
  shares = np.full([count], 1 / count, np.float32)
  state = tf.nest.map_structure(tf.convert_to_tensor, server_state)
  weights = newcomers.weights(state, tf.constant(shares))
  outputs = bundle_lib.expected_outputs(
    algorithm.personalized_model, weights, x
  )
  inputs = {'x': x, 'mixture': np.tile(shares, [len(x), 1])}
  return (
    bundle_lib.Sample('predict_mixture', inputs, _without_logits(outputs)),
  )


def _predict(
  model: model_lib.Model,
  weights_of: Callable[[tf.Tensor], Any],
  x: tf.Tensor,
  memberships: tf.Tensor,
) -> _Outputs:
  # Rows of one client are adjacent, so that they are one pass.
  distinct, group_ids = tf.raw_ops.UniqueV2(x=memberships, axis=[0])
  outputs = prediction.apply_by_group(
    model, lambda i: weights_of(distinct[i]), group_ids, x
  )
  return _without_logits(prediction.name_outputs(model, outputs))


def _without_logits(outputs: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the outputs of a mixture of probabilities, which has no logits."""
  return {name: value for name, value in outputs.items() if name != 'logits'}
