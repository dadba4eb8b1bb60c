"""FedJAX as it comes, on `ClientDataset`s.

FedAvg is its `fed_avg.federated_averaging`, and IFCA its `hyp_cluster`, which
asks all cluster models for their loss on all of a client's examples, trains the
best one, and takes each cluster's mean.

Timed: `apply` of one round, which cuts the batches (`skip_shuffle`: the rows
lie in the round's order before the clock starts), and the wait for the weights.
`for_each_client` has the `jit` backend, FedJAX's own choice for CPUs: one
client after the other, each step an XLA program that may use all cores.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import fedjax
import jax
import numpy as np
from fedjax.algorithms import fed_avg, hyp_cluster

from benchmarks import workload as workload_lib
from benchmarks.contenders import jax_models, program


class FedJaxContender:
  """A `FederatedAlgorithm` and its state."""

  def __init__(self, inputs: workload_lib.Inputs):
    """Builds the algorithm."""
    workload = inputs.workload
    self._inputs = inputs
    self._clients: list[tuple[str, fedjax.ClientDataset, jax.Array]] = []
    self._algorithm, initial = _BUILD[workload.algorithm](inputs)
    self._state = self._algorithm.init(
      jax.tree_util.tree_map(jax.numpy.asarray, initial)
    )

  def prepare(self, round_num: int) -> None:
    """Builds the clients' datasets, and the keys that nobody uses."""
    x, y = self._inputs.examples
    keys = jax.random.split(
      jax.random.PRNGKey(round_num), self._inputs.workload.num_clients
    )
    self._clients = [
      (
        client_id,
        fedjax.ClientDataset({'x': x[i][rows], 'y': y[i][rows]}),
        keys[i],
      )
      for i, (client_id, rows) in enumerate(
        zip(
          self._inputs.workload.client_ids,
          self._inputs.order(round_num).reshape(len(y), -1),
          strict=True,
        )
      )
    ]

  def run_round(self, round_num: int) -> None:
    """Runs `apply`, and waits for the weights."""
    del round_num
    self._state, _ = self._algorithm.apply(self._state, self._clients)
    jax.block_until_ready(self._state)

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the model, or the cluster models stacked."""
    if self._inputs.workload.algorithm == workload_lib.FED_AVG:
      return {n: np.asarray(leaf) for n, leaf in self._state.params.items()}
    models = self._state.cluster_params
    return {
      name: np.stack([model[name] for model in models]) for name in models[0]
    }


def _build_fed_avg(inputs: workload_lib.Inputs):
  """Returns the algorithm and what its `init` takes."""
  algorithm = fed_avg.federated_averaging(
    fedjax.model_grad(_model(inputs.workload)),
    client_optimizer=fedjax.optimizers.sgd(inputs.workload.learning_rate),
    server_optimizer=fedjax.optimizers.sgd(1.0),
    client_batch_hparams=_local_epoch(inputs.workload),
  )
  return algorithm, inputs.initial_weights


def _build_ifca(inputs: workload_lib.Inputs):
  """Returns the algorithm and what its `init` takes."""
  workload = inputs.workload
  algorithm = hyp_cluster.hyp_cluster(
    fedjax.model_per_example_loss(_model(workload)),
    client_optimizer=fedjax.optimizers.sgd(workload.learning_rate),
    server_optimizer=fedjax.optimizers.sgd(1.0),
    maximization_batch_hparams=fedjax.PaddedBatchHParams(
      batch_size=workload.num_examples
    ),
    expectation_batch_hparams=_local_epoch(workload),
  )
  stacked = inputs.initial_weights
  return algorithm, [
    {name: leaf[i] for name, leaf in stacked.items()}
    for i in range(workload.num_clusters)
  ]


_BUILD = {
  workload_lib.FED_AVG: _build_fed_avg,
  workload_lib.IFCA: _build_ifca,
}


def _local_epoch(workload: workload_lib.Workload):
  return fedjax.ShuffleRepeatBatchHParams(
    batch_size=workload.batch_size, num_epochs=1, skip_shuffle=True
  )


def _model(workload: workload_lib.Workload) -> fedjax.Model:
  def apply(weights, batch, key=None):
    del key
    return jax_models.logits(workload.model, weights, batch['x'])

  return fedjax.Model(
    # Nobody asks: the initial weights are those of all contenders.
    init=lambda key: {},
    apply_for_train=apply,
    apply_for_eval=apply,
    train_loss=lambda batch, logits: jax_models.example_losses(
      logits, batch['y']
    ),
    eval_metrics={},
  )


@contextlib.contextmanager
def _open(
  inputs: workload_lib.Inputs, form: Mapping[str, Any]
) -> Iterator[FedJaxContender]:
  del form
  with fedjax.for_each_client_backend('jit'):
    yield FedJaxContender(inputs)


if __name__ == '__main__':
  program.main(_open)
