"""Functional models: functions of (weights, examples), without variables.

Because the weights are arguments, a model can be stacked over clusters or
clients, averaged, sent in a TFF computation and written to a SavedModel
without changes to its code.
"""

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

Weights = OrderedDict[str, tf.Tensor]

CLASSIFICATION = 'classification'
REGRESSION = 'regression'


@dataclasses.dataclass(frozen=True)
class Model:
  """A functional model.

  Attributes:
    name: Key of the model in `models.registry`.
    task: `'classification'` or `'regression'`.
    input_shape: Shape of one example's features.
    num_outputs: Classes, or 1 for regression.
    initialize: seed int32 `[2]` -> weights; the same seed gives the same
      weights.
    apply: (weights, x `[batch, *input_shape]` of `input_dtype`) -> outputs
      `[batch, *label_shape, num_outputs]` float32: logits, or the regression's
      prediction.
    vectorizes: True if stacking many sets of weights turns into batched matrix
      products; False for convolutions, fused recurrences and the multi-head
      attention of Keras, which are looped over on a CPU.
    output_tolerance: Maximal difference of outputs, relative to the largest,
      when the same arithmetic runs in another order.
    input_dtype: int32 for the ids of tokens, else float32.
    label_shape: Shape of one example's label: `()`, or `(places,)` where a
      class is predicted at each of several places, such as the next word.
      Outputs and labels then have that axis after the batch.
    padding_label: Label of padded places, which are not predicted; None if
      there is none.
    unscored_labels: Labels that are predicted, but excluded from the score.
    id_features: Features that are ids, where the others are numbers.
  """

  name: str
  task: str
  input_shape: tuple[int, ...]
  num_outputs: int
  initialize: Callable[[tf.Tensor], Weights]
  apply: Callable[[Mapping[str, Any], tf.Tensor], tf.Tensor]
  vectorizes: bool
  output_tolerance: float = 1e-4
  input_dtype: tf.DType = tf.float32
  label_shape: tuple[int, ...] = ()
  padding_label: int | None = None
  unscored_labels: tuple[int, ...] = ()
  id_features: tuple[int, ...] = ()

  def weights_spec(self) -> Weights:
    """Returns the weights' types as `tf.TensorSpec`s, without making them."""
    return self._weights_spec

  @functools.cached_property
  def _weights_spec(self) -> Weights:
    traced = tf.function(
      self.initialize, autograph=False
    ).get_concrete_function(tf.TensorSpec([2], tf.int32))
    return tf.nest.map_structure(
      lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype),
      traced.structured_outputs,
    )

  def random_inputs(self, num_examples: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns examples to try the model on, `[num_examples, *input_shape]`."""
    shape = [num_examples, *self.input_shape]
    if self.input_dtype.is_floating:
      drawn = tf.random.stateless_normal(
        shape, seed, stddev=3.0, dtype=self.input_dtype
      )
      if not self.id_features:
        return drawn
      is_id = np.isin(np.arange(shape[-1]), self.id_features)
      return tf.where(is_id, tf.zeros_like(drawn), drawn)
    # Which ids there are, no model says; but as many as it predicts.
    return tf.random.stateless_uniform(
      shape, seed, 0, self.num_outputs, self.input_dtype
    )

  @property
  def label_dtype(self) -> tf.DType:
    """Returns int32 for classes and float32 for regression targets."""
    return tf.int32 if self.task == CLASSIFICATION else tf.float32

  def example_losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the loss of each example, `[batch]`, never a batch mean.

    Cross-entropy in nats, or the squared error (without a factor 1/2); of an
    example with labels at several places, the mean over those without padding.

    Args:
      outputs: Result of `apply`, `[batch, *label_shape, num_outputs]`.
      labels: `[batch, *label_shape]`, of `label_dtype`.
    """
    if self.task == CLASSIFICATION:
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
      return self._mean_of_places(losses, self._has_loss(labels))
    return tf.square(tf.squeeze(outputs, axis=1) - labels)

  def example_scores(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns 1 for a right class and 0 for a wrong one, or the squared error.

    Args:
      outputs: Result of `apply`, `[batch, *label_shape, num_outputs]`.
      labels: `[batch, *label_shape]`, of `label_dtype`.

    Returns:
      `[batch]` float32; its mean is the accuracy, or the mean squared error. Of
      an example with labels at several places, the share of right ones among
      those that are scored.
    """
    if self.task == CLASSIFICATION:
      predicted = tf.argmax(outputs, axis=-1, output_type=tf.int32)
      is_right = tf.cast(tf.equal(predicted, labels), tf.float32)
      return self._mean_of_places(is_right, self._is_scored(labels))
    return tf.square(tf.squeeze(outputs, axis=1) - labels)

  def loss_weights(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the weight of each example in a mean of losses, `[batch]`.

    Args:
      labels: `[batch, *label_shape]`.
      mask: 1 for a real example and 0 for padding, `[batch]`.

    Returns:
      The mask; or, where labels have several places, mask times the number of
      places without padding, so that every label counts once.
    """
    return mask * _count(self._has_loss(labels)) if self.label_shape else mask

  def score_weights(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns `loss_weights` for a mean of scores, by the scored labels."""
    return mask * _count(self._is_scored(labels)) if self.label_shape else mask

  def label_counts(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the counts of scored labels by class, float32 `[num_outputs]`.

    Args:
      labels: `[batch, *label_shape]`, of classes.
      mask: 1 for a real example and 0 for padding, `[batch]`.
    """
    counted = tf.cast(self._is_scored(labels), tf.float32)
    counted *= tf.reshape(mask, [-1] + [1] * len(self.label_shape))
    return tf.math.unsorted_segment_sum(counted, labels, self.num_outputs)

  def _has_loss(self, labels: tf.Tensor) -> tf.Tensor:
    if self.padding_label is None:
      return tf.ones_like(labels, tf.bool)
    # TFF makes graphs in which != compares identities.
    return tf.not_equal(labels, self.padding_label)

  def _is_scored(self, labels: tf.Tensor) -> tf.Tensor:
    is_scored = self._has_loss(labels)
    for label in self.unscored_labels:
      is_scored &= tf.not_equal(labels, label)
    return is_scored

  def _mean_of_places(self, values: tf.Tensor, is_kept: tf.Tensor) -> tf.Tensor:
    """Returns the mean of the kept places, `[batch]`; 0 where none is."""
    if not self.label_shape:
      return values
    kept = tf.reduce_sum(tf.where(is_kept, values, tf.zeros_like(values)), -1)
    return kept / tf.maximum(_count(is_kept), 1.0)

  @property
  def score_name(self) -> str:
    """Returns the name of the mean of `example_scores`."""
    return 'accuracy' if self.task == CLASSIFICATION else 'mse'

  @property
  def higher_is_better(self) -> bool:
    """Returns whether a larger score is a better one: an accuracy."""
    return self.task == CLASSIFICATION

  def map_stacked(
    self, function: Callable[[Weights], tf.Tensor], stacked_weights: Weights
  ) -> tf.Tensor:
    """Maps `function` over the sets of weights stacked on axis 0.

    One batched pass where the model vectorizes; otherwise, and in eager mode,
    where `tf.vectorized_map` would retrace at every call, a loop.
    """
    count = tf.nest.flatten(stacked_weights)[0].shape[0]
    # TensorFlow would read a single set by a gather, whose gradient is not a
    # dense tensor.
    if self.vectorizes and count != 1 and not tf.executing_eagerly():
      # The vectorized runtime reports operations that fall back to loops.
      return tf.vectorized_map(function, stacked_weights, warn=False)
    # Unstacked, not sliced: the gradient of each slice would be as large as
    # all.
    leaves = map(tf.unstack, tf.nest.flatten(stacked_weights))
    return tf.stack(
      [
        function(tf.nest.pack_sequence_as(stacked_weights, one))
        for one in zip(*leaves, strict=True)
      ]
    )


def _count(is_kept: tf.Tensor) -> tf.Tensor:
  """Returns the number of kept places of each example, float32 `[batch]`."""
  return tf.reduce_sum(tf.cast(is_kept, tf.float32), axis=-1)
