"""FedAvg and IFCA written by hand in JAX: what XLA on CPUs can do.

Like `floor_tensorflow` it knows that all clients have the same size and keeps
all examples resident. A round is a compiled loop over the clients of each
CPU device, and the mean over the devices. Convolutions are matrix products of
patches: inside a compiled loop XLA's own are some forty times slower.

Timed: the programs, and the wait for the weights.

Forms: `devices`. One uses all cores for each operation; of several each has a
thread of its own.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import workload as workload_lib
from benchmarks.contenders import jax_models, program


class JaxContender:
  """One form."""

  def __init__(self, inputs: workload_lib.Inputs, form: Mapping[str, Any]):
    """Places examples and weights.

    Args:
      inputs: Of the case.
      form: `devices`, among which the clients are shared out.
    """
    workload = inputs.workload
    self._devices = jax.devices()[: form['devices']]
    self._inputs = inputs
    self._x, self._y = map(self._share_out, inputs.examples)
    self._order: list[jax.Array] = []
    self._weights = jax.device_put(inputs.initial_weights, self._devices[0])
    self._train = jax.jit(_build_train_clients(workload))
    self._mean = jax.jit(_mean)

  def prepare(self, round_num: int) -> None:
    """Loads which rows each step reads."""
    self._order = self._share_out(self._inputs.order(round_num))

  def run_round(self, round_num: int) -> None:
    """Runs the programs, and waits for the weights."""
    del round_num
    weights = [
      jax.device_put(self._weights, device) for device in self._devices
    ]
    # A call only starts the program: those of all devices run side by side.
    totals = [
      self._train(*of_device)
      for of_device in zip(weights, self._x, self._y, self._order, strict=True)
    ]
    totals = jax.device_put(totals, self._devices[0])
    self._weights = jax.block_until_ready(self._mean(self._weights, totals))

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the model, or the cluster models stacked."""
    return {name: np.asarray(leaf) for name, leaf in self._weights.items()}

  def _share_out(self, array: np.ndarray) -> list[jax.Array]:
    """Returns an array of clients for each device."""
    shares = np.array_split(array, len(self._devices))
    return [
      jax.block_until_ready(jax.device_put(share, device))
      for share, device in zip(shares, self._devices, strict=True)
    ]


def _build_train_clients(workload: workload_lib.Workload):
  """Returns (weights, x, y, order) -> (sum of trained weights, clients in it).

  For IFCA both have a first axis, the cluster.
  """

  def mean_loss(weights, x, y):
    logits = jax_models.logits(
      workload.model, weights, x, jax_models.convolve_by_matmul
    )
    return jnp.mean(jax_models.example_losses(logits, y))

  def train(weights, x, y, order):
    """Returns the weights of one client after training."""
    for rows in order:
      gradient = jax.grad(mean_loss)(weights, x[rows], y[rows])
      weights = {
        name: leaf - workload.learning_rate * gradient[name]
        for name, leaf in weights.items()
      }
    return weights

  def add_fed_avg(weights, sums, count, client):
    trained = train(weights, *client)
    return jax.tree.map(jnp.add, sums, trained), count + 1

  def add_ifca(weights, sums, count, client):
    x, y, _ = client
    losses = jax.vmap(mean_loss, (0, None, None))(weights, x, y)
    best = jnp.argmin(losses)
    trained = train({n: leaf[best] for n, leaf in weights.items()}, *client)
    sums = {n: leaf.at[best].add(trained[n]) for n, leaf in sums.items()}
    return sums, count.at[best].add(1)

  is_clustered = workload.algorithm == workload_lib.IFCA
  add = add_ifca if is_clustered else add_fed_avg

  def train_clients(weights, x, y, order):
    zeros = (
      jax.tree.map(jnp.zeros_like, weights),
      jnp.zeros([workload.num_clusters] if is_clustered else []),
    )
    return jax.lax.scan(
      lambda total, client: (add(weights, *total, client), None),
      zeros,
      (x, y, order),
    )[0]

  return train_clients


def _mean(old, totals):
  """Returns the means of all devices' sums, or the old weights of no client."""
  sums, count = jax.tree.map(lambda *leaves: sum(leaves), *totals)

  def divide(total, old):
    clients = count.reshape(count.shape + (1,) * (old.ndim - count.ndim))
    return jnp.where(clients > 0, total / jnp.maximum(clients, 1), old)

  return jax.tree.map(divide, sums, old)


@contextlib.contextmanager
def _open(
  inputs: workload_lib.Inputs, form: Mapping[str, Any]
) -> Iterator[JaxContender]:
  if form['devices'] > 1:
    # Read when JAX looks for its devices, which it has not yet.
    jax.config.update('jax_num_cpu_devices', form['devices'])
    os.environ['XLA_FLAGS'] = '--xla_cpu_multi_thread_eigen=false'
  yield JaxContender(inputs, form)


if __name__ == '__main__':
  program.main(_open)
