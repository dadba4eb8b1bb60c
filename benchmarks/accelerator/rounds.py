"""Rounds of FedAvg, IFCA, FedSoft and PPFL by hand in jax.

What somebody would write who has nothing else to simulate: all clients have as
many examples, and no client fails. Clients are computed in blocks: vectorized
(`vmap`) inside a block, one block after the other (`scan`). jax and the
neighbours that are packed with this file only.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from benchmarks import workload as workload_lib
from benchmarks.contenders import jax_models

Weights = dict[str, jax.Array]

# As `algorithms.build_algorithm` sets them, and the options' defaults.
_FED_SOFT_PROXIMAL_WEIGHT = 0.1
_PPFL_MEMBERSHIP_RATE = 0.1
_PPFL_FLOOR = 1e-6
# Each client has a weight in the mean of each cluster.
_CLUSTERED = (workload_lib.IFCA, workload_lib.FED_SOFT)


class Client(NamedTuple):
  """What a client has; of all clients, stacked.

  Attributes:
    given: name -> its messages and its state.
    x: float32 `[num_examples, ...]`.
    y: int32 `[num_examples]`.
    order: Rows of each local step, int32 `[num_steps, batch_size]`.
  """

  given: dict[str, jax.Array]
  x: jax.Array
  y: jax.Array
  order: jax.Array


# (weights, client) -> (trained weights, its weight in each mean).
Work = Callable[[Weights, Client], tuple[Weights, jax.Array]]


def build_round(
  workload: workload_lib.Workload, block: int
) -> Callable[[Weights, Client], Weights]:
  """Returns (weights, all clients) -> the new weights.

  Args:
    workload: The algorithm and the sizes.
    block: Clients computed at once; divides their number.
  """
  work = _Work(workload).of_client
  clusters = [workload.num_clusters] if workload.algorithm in _CLUSTERED else []

  def run(weights: Weights, clients: Client) -> Weights:
    def add(totals, stacked):
      trained, shares = jax.vmap(work, (None, 0))(weights, stacked)
      sums = jax.tree.map(
        lambda leaf: jnp.tensordot(shares, leaf, [[0], [0]]), trained
      )
      return jax.tree.map(jnp.add, totals, (sums, shares.sum(0))), None

    zeros = jax.tree.map(jnp.zeros_like, weights), jnp.zeros(clusters)
    blocks = jax.tree.map(
      lambda leaf: leaf.reshape(-1, block, *leaf.shape[1:]), clients
    )
    (sums, weight), _ = jax.lax.scan(add, zeros, blocks)

    def divide(total: jax.Array, old: jax.Array) -> jax.Array:
      by = weight.reshape(weight.shape + (1,) * (total.ndim - weight.ndim))
      return jnp.where(by > 0, total / jnp.where(by > 0, by, 1), old)

    return jax.tree.map(divide, sums, weights)

  return run


def count_operations(
  workload: workload_lib.Workload, weights: Weights, client: Client
) -> float:
  """Returns the floating-point operations of a round, as XLA counts them.

  XLA counts a loop's body once, so one and two steps are counted, unrolled; on
  the CPU, as jax has no count for a GPU.

  Args:
    workload: The algorithm and the sizes.
    weights: Of the server.
    client: Any one of them.
  """
  work = _Work(workload, unroll=True).of_client

  def count(num_steps: int) -> float:
    short = client._replace(order=client.order[:num_steps])
    types = jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
      (weights, short),
    )
    with jax.default_device(jax.devices('cpu')[0]):
      return jax.jit(work).lower(*types).cost_analysis()['flops']

  num_steps = len(client.order)
  first = count(1)
  later = count(2) - first if num_steps > 1 else 0.0
  return workload.num_clients * (first + (num_steps - 1) * later)


@dataclasses.dataclass(frozen=True)
class _Work:
  """The work of one client.

  Attributes:
    workload: The algorithm and the sizes.
    unroll: Whether the steps become one program without a loop.
  """

  workload: workload_lib.Workload
  unroll: bool = False

  @property
  def of_client(self) -> Work:
    """Returns that of the workload's algorithm."""
    return {
      workload_lib.FED_AVG: self._fed_avg,
      workload_lib.IFCA: self._ifca,
      workload_lib.FED_SOFT: self._fed_soft,
      workload_lib.PPFL: self._ppfl,
    }[self.workload.algorithm]

  def _fed_avg(self, weights: Weights, client: Client):
    trained = self._descend(jax.grad(self._loss), weights, client)
    return trained, jnp.ones([])

  def _ifca(self, weights: Weights, client: Client):
    losses = jax.vmap(self._loss, (0, None, None))(weights, client.x, client.y)
    best = jnp.argmin(losses)
    start = jax.tree.map(lambda leaf: leaf[best], weights)
    trained = self._descend(jax.grad(self._loss), start, client)
    return trained, jax.nn.one_hot(best, self.workload.num_clusters)

  def _fed_soft(self, weights: Weights, client: Client):
    importance = client.given['importance_weights']
    strength = importance.sum()
    center = _mix(importance / strength, weights)

    def gradient(own, x, y):
      return jax.tree.map(
        lambda slope, leaf, middle: (
          slope + _FED_SOFT_PROXIMAL_WEIGHT * strength * (leaf - middle)
        ),
        jax.grad(self._loss)(own, x, y),
        own,
        center,
      )

    own = {name: client.given[f'state/{name}'] for name in weights}
    trained = self._descend(gradient, own, client)
    return trained, client.given['cluster_weights']

  def _ppfl(self, weights: Weights, client: Client):
    membership = client.given['membership']
    ahead = self._outputs(weights, client.x)
    slope = jax.grad(
      lambda shares: _mean_loss(jnp.tensordot(shares, ahead, 1), client.y)
    )(membership)
    slope = client.given['client_weight'] * slope
    slope += client.given['penalty_gradient']
    stepped = jax.nn.softmax(
      jnp.log(membership) - _PPFL_MEMBERSHIP_RATE * slope
    )
    stepped = jnp.maximum(stepped, _PPFL_FLOOR)
    membership = stepped / stepped.sum()

    def loss(weights, x, y):
      # Of linear models, as here, mixed weights give mixed outputs.
      return self._loss(_mix(membership, weights), x, y)

    return self._descend(jax.grad(loss), weights, client), jnp.ones([])

  def _descend(self, gradient, weights: Weights, client: Client) -> Weights:
    """Takes a step of SGD for each batch."""

    def step(weights: Weights, rows: jax.Array):
      slope = gradient(weights, client.x[rows], client.y[rows])
      moved = jax.tree.map(
        lambda leaf, one: leaf - self.workload.learning_rate * one,
        weights,
        slope,
      )
      return moved, None

    return jax.lax.scan(step, weights, client.order, unroll=self.unroll)[0]

  def _loss(self, weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
    return _mean_loss(self._logits(weights, x), y)

  def _outputs(self, stacked: Weights, x: jax.Array) -> jax.Array:
    """Returns the logits of several models, `[models, batch, num_classes]`."""
    return jax.vmap(self._logits, (0, None))(stacked, x)

  def _logits(self, weights: Weights, x: jax.Array) -> jax.Array:
    """Returns the logits; a kernel may be `atoms` and `coefficients`."""
    kernels = {
      name.replace('/atoms', '/kernel'): jnp.tensordot(
        atoms, weights[name.replace('/atoms', '/coefficients')], 1
      )
      for name, atoms in weights.items()
      if name.endswith('/atoms')
    }
    return jax_models.logits(self.workload.model, weights | kernels, x)


def _mix(shares: jax.Array, weights: Weights) -> Weights:
  return jax.tree.map(lambda leaf: jnp.tensordot(shares, leaf, 1), weights)


def _mean_loss(logits: jax.Array, y: jax.Array) -> jax.Array:
  return jnp.mean(jax_models.example_losses(logits, y))
