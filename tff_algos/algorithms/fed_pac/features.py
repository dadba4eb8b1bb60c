"""Features of a network: inputs of its last layer."""

from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, errors
from tff_algos.core import model as model_lib
from tff_algos.stages.client import weight_groups


class ClassSums(NamedTuple):
  """Features of a client's examples, by class.

  Attributes:
    counts: Examples of each class, `[classes]`.
    sums: Sums of their features, `[classes, width]`.
    squares: Sum of the squared norms of all features, `[]`.
  """

  counts: tf.Tensor
  sums: tf.Tensor
  squares: tf.Tensor


class FeatureModel:
  """A classifier split into its features and the dense layer after them.

  Attributes:
    groups: Groups of its weights; the private weights are the head.
    width: Number of features.
  """

  def __init__(self, model: model_lib.Model):
    """Splits a classifier.

    Raises:
      ConfigError: If it does not end in a dense layer after another layer and
        without an activation, or predicts more than one class per example.
    """
    self.groups = weight_groups.WeightGroups(model, (weight_groups.LAST_LAYER,))
    head = self.groups.spec.private
    kernels = [name for name, leaf in head.items() if len(leaf.shape) == 2]
    is_dense = len(kernels) == 1 and len(head) <= 2
    is_classifier = model.task == model_lib.CLASSIFICATION
    if not (is_dense and is_classifier and self.groups.spec.shared) or (
      model.label_shape
    ):
      raise errors.ConfigError(
        f'features need a classifier of one class per example whose last layer '
        f'is dense and not its only one, but the weights of {model.name!r} are '
        f'{", ".join(model.weights_spec())}; take another model'
      )
    self._model = model
    self._kernel = kernels[0]
    self.width = int(head[self._kernel].shape[0])  # pyright: ignore[reportArgumentType]
    if head[self._kernel].shape[1] != model.num_outputs or not self._agrees():
      raise errors.ConfigError(
        'features need a classifier whose outputs are those of its last layer, '
        f'but {model.name!r} changes them, say by an activation; take another '
        'model'
      )

  def _agrees(self) -> bool:
    """Returns whether features and head make the model, by trying."""
    with tf.init_scope():
      seed = tf.constant([1, 2])
      weights = self._model.initialize(seed)
      x = self._model.random_inputs(8, seed)
      shared, head = self.groups.split(weights)
      expected = self._model.apply(weights, x)
      gap = self.outputs(head, self.features(shared, x)) - expected
      scale = tf.reduce_max(tf.abs(expected))
      tolerance = 10 * self._model.output_tolerance * scale
      return bool(tf.reduce_max(tf.abs(gap)) <= tolerance)

  def features(self, shared: model_lib.Weights, x: tf.Tensor) -> tf.Tensor:
    """Returns the features of examples, `[batch, width]`.

    Args:
      shared: All weights but those of the head.
      x: Examples, `[batch, ...]`.
    """
    # With an identity head, the outputs of the model are the features.
    head = {
      name: tf.eye(self.width)
      if name == self._kernel
      else tf.zeros([self.width])
      for name in self.groups.private
    }
    return self._model.apply({**shared, **head}, x)

  def outputs(self, head: model_lib.Weights, features: tf.Tensor) -> tf.Tensor:
    """Returns the logits, `[batch, classes]`."""
    logits = tf.matmul(features, head[self._kernel])
    for name in self.groups.private:
      if name != self._kernel:
        logits += head[name]
    return logits

  def class_sums(
    self, shared: model_lib.Weights, data: algorithm.ClientData
  ) -> ClassSums:
    """Returns the features of a client's examples, by class."""
    features = self.features(shared, data.x)
    # Features of padding may be NaN.
    features = tf.where(data.mask[:, tf.newaxis] > 0, features, 0.0)
    is_of = tf.one_hot(data.y, self._model.num_outputs)
    is_of *= data.mask[:, tf.newaxis]
    return ClassSums(
      tf.reduce_sum(is_of, axis=0),
      tf.matmul(is_of, features, transpose_a=True),
      tf.reduce_sum(tf.square(features)),
    )
