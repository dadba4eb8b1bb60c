"""Export of all cluster models as one SavedModel, for new clients.

Signatures (`x` is `[batch, *input_shape]` everywhere, float32 or ids of
tokens):

- `serving_default`, `predict_cluster`: `x`, `cluster_id` `[batch]` int32 ->
  the outputs of `prediction.name_outputs`.
- `predict_mixture`: `x`, `mixture` `[batch, num_clusters]` float32, rows >= 0
  that sum to 1 -> `probabilities` and `class_id`, or `prediction`, of the
  personalized model of a client with that membership, if the algorithm mixes
  models (`FederatedAlgorithm.newcomers`); otherwise the mixture of the
  clusters' probabilities or predictions.
- `pick_cluster`: `x`, `label` `[batch, *label_shape]`, a few labelled examples
  of one client -> `cluster_id` int32 `[1]` and `mean_loss` float32 `[1,
  num_clusters]`. TensorFlow Serving's row format requires the leading 1.

`raw_signatures` adds those that take raw columns in place of `x`.
"""

import functools
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import model as model_lib
from tff_algos.export import bundle as bundle_lib
from tff_algos.export import (
  manifest,
  newcomer_models,
  prediction,
  raw_signatures,
  validation,
)

# Mixtures are often float32 sums that were written as decimal text.
MIXTURE_TOLERANCE = 1e-3

_Outputs = Mapping[str, tf.Tensor]


def export_cluster_models(
  base_dir: str | os.PathLike[str],
  algorithm: algorithm_lib.FederatedAlgorithm,
  server_state: algorithm_lib.Structure,
  sample_inputs: np.ndarray,
  provenance: manifest.Provenance,
  features: raw_signatures.Features | None = None,
) -> pathlib.Path:
  """Writes the cluster models as the next version under `base_dir`.

  Args:
    base_dir: Such as `<workdir>/export/cluster_models`.
    algorithm: Algorithm; defines the cluster models.
    server_state: The state to export, of arrays or tensors.
    sample_inputs: `[n, *input_shape]` float32, n >= 1, for comparing the
      bundle's predictions with those of the model in memory.
    provenance: Config, round and dataset version of the state.
    features: The raw data, for signatures that take them; new clients send
      their own statistics, where columns are encoded by them.

  Returns:
    The folder `<base_dir>/<version>`.

  Raises:
    ExportError: If the weights or sample inputs are invalid, or the predictions
      of the loaded bundle differ. No files are left behind.
    InfrastructureError: If the disk is full or may not be written.
  """
  model = algorithm.cluster_model
  x = validation.check_sample_inputs(model, sample_inputs)
  server_state = tf.nest.map_structure(np.asarray, server_state)
  weights = tf.nest.map_structure(
    np.asarray, algorithm.cluster_weights(server_state)
  )
  for name, value in weights.items():
    what = f'cluster weights {name!r}'
    validation.check_leading_axis(what, value, algorithm.num_clusters)
    validation.check_finite(what, value)
  variables = tf.nest.map_structure(bundle_lib.variable, weights)
  stored = list(
    zip(tf.nest.flatten(weights), tf.nest.flatten(variables), strict=True)
  )
  mixture = newcomer_models.store(algorithm, server_state, stored)
  signatures = _signatures(model, variables, algorithm.num_clusters, mixture)
  raw = raw_signatures.RawSignatures(model, features, signatures)
  module: Any = tf.Module()
  module.raw = raw
  # Named, so that the weights can be extracted from a loaded bundle.
  module.cluster_weights = dict(variables)
  module.weights = [*tf.nest.flatten(variables), *mixture.variables]
  bundle = bundle_lib.Bundle(
    module=module,
    signatures={
      **{name: one.function for name, one in signatures.items()},
      **raw.functions,
    },
    methods=raw.methods,
    facts={
      'kind': 'cluster_models',
      'num_clusters': algorithm.num_clusters,
      **bundle_lib.model_facts(algorithm.name, model),
      **raw.facts,
    },
    samples=(
      *(
        _sample(model, weights, cluster_id, x)
        for cluster_id in range(algorithm.num_clusters)
      ),
      *newcomer_models.samples(algorithm, server_state, x),
      *raw.sample(
        {'cluster_id': np.zeros([1], np.int32)},
        tf.nest.map_structure(lambda value: value[0], weights),
      ),
    ),
    tolerance=model.output_tolerance,
  )
  return bundle_lib.write_bundle(base_dir, bundle, provenance)


def _sample(
  model: model_lib.Model,
  weights: Mapping[str, np.ndarray],
  cluster_id: int,
  x: np.ndarray,
) -> bundle_lib.Sample:
  cluster_weights = tf.nest.map_structure(
    lambda value: tf.constant(value[cluster_id]), weights
  )
  return bundle_lib.Sample(
    'predict_cluster',
    {'x': x, 'cluster_id': np.full([len(x)], cluster_id, np.int32)},
    bundle_lib.expected_outputs(model, cluster_weights, x),
  )


def _signatures(
  model: model_lib.Model,
  variables: Any,
  num_clusters: int,
  mixture: newcomer_models.Stored,
) -> Mapping[str, raw_signatures.Signature]:
  """Returns the signatures of the stacked weights' variables by name."""
  predict_mixture = mixture.predict or functools.partial(
    _mix_predictions, model, variables
  )
  x = prediction.features_spec(model)

  def signature(
    function: Callable[[tf.Tensor, tf.Tensor], _Outputs], other: tf.TensorSpec
  ) -> raw_signatures.Signature:
    traced = bundle_lib.signature_function(function, x, other)
    return raw_signatures.Signature(traced, (other,))

  predict_cluster = signature(
    lambda x, cluster_id: _predict_cluster(
      model, variables, num_clusters, x, cluster_id
    ),
    tf.TensorSpec([None], tf.int32, name='cluster_id'),
  )
  return {
    'serving_default': predict_cluster,
    'predict_cluster': predict_cluster,
    'predict_mixture': signature(
      lambda x, mixture: _predict_mixture(predict_mixture, x, mixture),
      tf.TensorSpec([None, num_clusters], tf.float32, name='mixture'),
    ),
    'pick_cluster': signature(
      lambda x, label: _pick_cluster(model, variables, x, label),
      tf.TensorSpec(
        [None, *model.label_shape], model.label_dtype, name='label'
      ),
    ),
  }


def _predict_cluster(
  model: model_lib.Model,
  variables: Any,
  num_clusters: int,
  x: tf.Tensor,
  cluster_id: tf.Tensor,
) -> _Outputs:
  checks = [
    prediction.require_same_rows('cluster_id', cluster_id, x),
    prediction.require_index('cluster_id', cluster_id, num_clusters),
  ]
  with tf.control_dependencies(checks):
    cluster_id = tf.identity(cluster_id)
  outputs = prediction.apply_by_group(
    model,
    lambda i: tf.nest.map_structure(lambda v: tf.gather(v, i), variables),
    cluster_id,
    x,
  )
  return prediction.name_outputs(model, outputs)


def _predict_mixture(
  predict: Callable[[tf.Tensor, tf.Tensor], _Outputs],
  x: tf.Tensor,
  mixture: tf.Tensor,
) -> _Outputs:
  checks = [
    prediction.require_same_rows('mixture', mixture, x),
    _require_mixture(mixture),
  ]
  with tf.control_dependencies(checks):
    mixture = tf.identity(mixture)
  # Else a sum that is off by the tolerance would scale what is mixed.
  return predict(x, mixture / tf.reduce_sum(mixture, axis=1, keepdims=True))


def _mix_predictions(
  model: model_lib.Model, variables: Any, x: tf.Tensor, mixture: tf.Tensor
) -> _Outputs:
  # Of all clusters, `[num_clusters, batch, num_outputs]`.
  outputs = model.map_stacked(
    lambda weights: model.apply(weights, x),
    tf.nest.map_structure(tf.convert_to_tensor, variables),
  )
  if model.task == model_lib.CLASSIFICATION:
    return prediction.name_probabilities(
      tf.einsum('bk,kb...->b...', mixture, tf.nn.softmax(outputs))
    )
  return {'prediction': tf.einsum('bk,kb->b', mixture, outputs[:, :, 0])}


def _require_mixture(mixture: tf.Tensor) -> prediction.Check:
  row_sums = tf.reduce_sum(mixture, axis=1)
  # Comparisons with NaN are false, so that NaN is refused too.
  sums_to_one = tf.abs(row_sums - 1) <= MIXTURE_TOLERANCE
  return prediction.require_rows(
    sums_to_one & tf.reduce_all(mixture >= 0, axis=1),
    lambda row: tf.strings.join(
      [
        'mixture must be >= 0 and its rows must sum to 1 (tolerance '
        f'{MIXTURE_TOLERANCE:g}), but row ',
        tf.strings.as_string(row),
        ' sums to ',
        tf.strings.as_string(row_sums[row], shortest=True),
        ' with smallest entry ',
        tf.strings.as_string(tf.reduce_min(mixture[row]), shortest=True),
      ]
    ),
  )


def _pick_cluster(
  model: model_lib.Model,
  variables: Any,
  x: tf.Tensor,
  label: tf.Tensor,
) -> _Outputs:
  counts = model.loss_weights(label, tf.ones(tf.shape(label)[:1]))
  checks = [
    prediction.require_same_rows('label', label, x),
    prediction.require_rows(
      (tf.reduce_sum(counts) > 0)[tf.newaxis],
      lambda _: tf.constant('pick_cluster needs at least one example'),
    ),
  ]
  if model.task == model_lib.CLASSIFICATION:
    checks.append(prediction.require_index('label', label, model.num_outputs))
  else:
    checks.append(
      prediction.require_values(
        tf.math.is_finite(label), label, 'label must be finite'
      )
    )
  with tf.control_dependencies(checks):
    label = tf.identity(label)
  losses = model.map_stacked(
    lambda weights: model.example_losses(model.apply(weights, x), label),
    tf.nest.map_structure(tf.convert_to_tensor, variables),
  )
  mean_loss = tf.reduce_sum(losses * counts, axis=1) / tf.reduce_sum(counts)
  infinity = tf.constant(np.inf, tf.float32)
  mean_loss = tf.where(tf.math.is_nan(mean_loss), infinity, mean_loss)
  # The lowest index on a tie, as in training (`stages/clusters/assignment.py`).
  cluster_id = tf.argmin(mean_loss, output_type=tf.int32)
  return {
    'cluster_id': cluster_id[tf.newaxis],
    'mean_loss': mean_loss[tf.newaxis],
  }
