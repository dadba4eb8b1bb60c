"""What a model is here: functions of (weights, examples), with no variables.

Because the weights are arguments, a model can be stacked over clusters or
clients, averaged, sent in a TFF computation and written to a SavedModel
without changing a line of it.
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable

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
    apply: (weights, x `[batch, *input_shape]` float32) -> outputs
      `[batch, num_outputs]` float32: logits, or the regression's prediction.
    vectorizes: True if stacking many sets of weights turns into batched matrix
      products; False for convolutions, which are looped over on a CPU.
    output_tolerance: How far outputs may lie apart, relative to the largest,
      when the same arithmetic runs in another order.
  """

  name: str
  task: str
  input_shape: tuple[int, ...]
  num_outputs: int
  initialize: Callable[[tf.Tensor], Weights]
  apply: Callable[[Weights, tf.Tensor], tf.Tensor]
  vectorizes: bool
  output_tolerance: float = 1e-4

  def weights_spec(self) -> Weights:
    """Returns the weights' types as `tf.TensorSpec`s, without making them."""
    traced = tf.function(
      self.initialize, autograph=False
    ).get_concrete_function(tf.TensorSpec([2], tf.int32))
    return tf.nest.map_structure(
      lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype),
      traced.structured_outputs,
    )

  @property
  def label_dtype(self) -> tf.DType:
    """Returns int32 for classes and float32 for regression targets."""
    return tf.int32 if self.task == CLASSIFICATION else tf.float32

  def example_losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns the loss of each example, `[batch]`, never a batch mean.

    Cross-entropy in nats, or the squared error (without a factor 1/2).

    Args:
      outputs: What `apply` returned, `[batch, num_outputs]`.
      labels: `[batch]`, of `label_dtype`.
    """
    if self.task == CLASSIFICATION:
      return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
    return tf.square(outputs[:, 0] - labels)

  def example_scores(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns 1 for a right class and 0 for a wrong one, or the squared error.

    Args:
      outputs: What `apply` returned, `[batch, num_outputs]`.
      labels: `[batch]`, of `label_dtype`.

    Returns:
      `[batch]` float32; its mean is the accuracy, or the mean squared error.
    """
    if self.task == CLASSIFICATION:
      predicted = tf.argmax(outputs, axis=-1, output_type=tf.int32)
      return tf.cast(tf.equal(predicted, labels), tf.float32)
    return tf.square(outputs[:, 0] - labels)

  @property
  def score_name(self) -> str:
    """Returns what the mean of `example_scores` is called."""
    return 'accuracy' if self.task == CLASSIFICATION else 'mse'

  def map_stacked(
    self, function: Callable[[Weights], tf.Tensor], stacked_weights: Weights
  ) -> tf.Tensor:
    """Returns `function` of every set of weights on axis 0, stacked.

    One batched pass where the model vectorizes; a loop where not, and in eager
    mode, where `tf.vectorized_map` would trace anew at every call.
    """
    if self.vectorizes and not tf.executing_eagerly():
      # What it has to loop over, the vectorized runtime reports by phase.
      return tf.vectorized_map(function, stacked_weights, warn=False)
    count = tf.nest.flatten(stacked_weights)[0].shape[0]
    return tf.stack(
      [
        function(tf.nest.map_structure(lambda leaf: leaf[i], stacked_weights))  # noqa: B023
        for i in range(count)
      ]
    )
