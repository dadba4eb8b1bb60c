"""TFF 0.87 as it comes: `build_weighted_fed_avg` on `tf.data` clients.

Of our code it uses the worker process and the model's formula. The clients'
datasets are built in the round's order before the clock starts, which is to
its favour: users of TFF shuffle inside the dataset.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from benchmarks import algorithms
from benchmarks import workload as workload_lib
from benchmarks.contenders import program
from tff_algos.core import tff_compat  # Before TFF: it hides its warnings.
from tff_algos.runtimes.tff import local_worker

import tensorflow_federated as tff  # isort: skip


class StockContender:
  """A `LearningProcess` and its state."""

  def __init__(self, inputs: workload_lib.Inputs, context: object):
    """Builds the process.

    Args:
      inputs: Of the case.
      context: TFF's, in which all computations run.
    """
    self._inputs = inputs
    self._context = context
    self._clients: list[tf.data.Dataset] = []
    self._process = tff.learning.algorithms.build_weighted_fed_avg(
      _functional_model(inputs),
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(
        inputs.workload.learning_rate
      ),
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
    )
    with tff_compat.in_context(context):
      self._state = self._process.initialize()

  def prepare(self, round_num: int) -> None:
    """Builds the datasets of a round."""
    x, y = self._inputs.examples
    self._clients = [
      tf.data.Dataset.from_tensor_slices(
        (x[i][rows.ravel()], y[i][rows.ravel()])
      ).batch(rows.shape[1])
      for i, rows in enumerate(self._inputs.order(round_num))
    ]

  def run_round(self, round_num: int) -> None:
    """Runs `next`."""
    del round_num
    with tff_compat.in_context(self._context):
      self._state = self._process.next(self._state, self._clients).state

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the model."""
    with tff_compat.in_context(self._context):
      weights = self._process.get_model_weights(self._state).trainable
    names = self._inputs.initial_weights
    return dict(zip(names, map(np.asarray, weights), strict=True))


def _functional_model(inputs):
  workload = inputs.workload
  model = algorithms.build_model(workload)
  initial = inputs.initial_weights

  @tf.function(autograph=False)
  def predict(weights, x, training):
    del training
    return model.apply(OrderedDict(zip(initial, weights[0], strict=True)), x)

  @tf.function(autograph=False)
  def mean_loss(outputs, labels, sample_weight=None):
    del sample_weight
    return tf.reduce_mean(model.example_losses(outputs, labels))

  return tff.learning.models.FunctionalModel(
    initial_weights=(tuple(initial.values()), ()),
    predict_on_batch_fn=predict,
    loss_fn=mean_loss,
    input_spec=(
      tf.TensorSpec([None, *workload.input_shape], tf.float32),
      tf.TensorSpec([None], tf.int32),
    ),
  )


@contextlib.contextmanager
def _open(inputs, form) -> Iterator[StockContender]:
  del form
  tff_compat.refuse_default_context()
  with contextlib.ExitStack() as stack:
    local = stack.enter_context(local_worker.LocalWorker())
    channel = stack.enter_context(tff_compat.connect(local.address))
    yield StockContender(
      inputs, tff_compat.remote_context(channel, local.check_alive)
    )


if __name__ == '__main__':
  program.main(_open)
