"""FedAvg written by hand in PyTorch: a loop over clients, a loop over batches.

Examples and the weights' sum are resident tensors. Timed: the whole round, in
all processes.

Forms: `processes`, of one thread each. Each trains its share of the clients,
the first of them in the contender itself; they read the weights and leave their
sums in shared memory.
"""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from multiprocessing import connection
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from torch.nn import functional

from benchmarks import workload as workload_lib
from benchmarks.contenders import program, torch_models


class ClientTrainer:
  """Trains the clients of one process.

  Attributes:
    total: The sum of their weights after the last round.
  """

  def __init__(
    self,
    inputs: workload_lib.Inputs,
    weights: list[torch.Tensor],
    part: int,
    num_parts: int,
  ):
    """Loads the examples.

    Args:
      inputs: Of the case.
      weights: The model; read at the start of every round.
      part: Which share of the clients, from 0.
      num_parts: Number of shares.
    """
    num_clients = inputs.workload.num_clients
    edges = [num_clients * i // num_parts for i in range(num_parts + 1)]
    self._clients = slice(edges[part], edges[part + 1])
    self._inputs = inputs
    x, y = inputs.examples
    self._x = torch.from_numpy(torch_models.images(x[self._clients]))
    self._y = torch.from_numpy(y[self._clients].astype(np.int64))
    self._weights = weights
    self._order = torch.empty(0)
    self._network = torch_models.build_network(inputs.workload)
    self.total = [torch.zeros_like(leaf).share_memory_() for leaf in weights]

  def prepare(self, round_num: int) -> None:
    """Loads which rows each step reads."""
    order = self._inputs.order(round_num)[self._clients]
    self._order = torch.from_numpy(order.astype(np.int64))

  def train(self) -> None:
    """Trains all clients, one after the other."""
    local = list(self._network.parameters())
    rate = self._inputs.workload.learning_rate
    for leaf in self.total:
      leaf.zero_()
    for x, y, order in zip(self._x, self._y, self._order, strict=True):
      with torch.no_grad():
        torch._foreach_copy_(local, self._weights)
      for rows in order:
        loss = functional.cross_entropy(self._network(x[rows]), y[rows])
        gradient = torch.autograd.grad(loss, local)
        with torch.no_grad():
          torch._foreach_add_(local, gradient, alpha=-rate)
      with torch.no_grad():
        torch._foreach_add_(self.total, local)


class PyTorchContender:
  """One form."""

  def __init__(
    self,
    inputs: workload_lib.Inputs,
    weights: list[torch.Tensor],
    trainer: ClientTrainer,
    others: list[connection.Connection],
  ):
    """Puts together what `_open` has started.

    Args:
      inputs: Of the case.
      weights: The model, shared.
      trainer: This process's.
      others: To the other processes, which have sent their sums.
    """
    self._inputs = inputs
    self._weights = weights
    self._trainer = trainer
    self._others = others
    self._totals = [trainer.total, *(other.recv() for other in others)]

  def prepare(self, round_num: int) -> None:
    """Has all processes load which rows each step reads."""
    for other in self._others:
      other.send(round_num)
    self._trainer.prepare(round_num)
    for other in self._others:
      other.recv()

  def run_round(self, round_num: int) -> None:
    """Trains in all processes, and sets the weights to the mean."""
    for other in self._others:
      other.send(round_num)
    self._trainer.train()
    for other in self._others:
      other.recv()
    num_clients = self._inputs.workload.num_clients
    for leaf, *parts in zip(self._weights, *self._totals, strict=True):
      torch.div(sum(parts), num_clients, out=leaf)

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the model."""
    return torch_models.named_weights(
      self._inputs.initial_weights, self._weights
    )


def _serve(
  pipe: connection.Connection, folder: pathlib.Path, weights, part, num_parts
) -> None:
  """Trains a share of the clients in a process of its own, until told None."""
  torch.set_num_threads(1)
  trainer = ClientTrainer(workload_lib.Inputs(folder), weights, part, num_parts)
  pipe.send(trainer.total)
  # Each round is announced twice: to prepare, and to train.
  while (round_num := pipe.recv()) is not None:
    trainer.prepare(round_num)
    pipe.send(round_num)
    pipe.recv()
    trainer.train()
    pipe.send(round_num)


@contextlib.contextmanager
def _open(
  inputs: workload_lib.Inputs, form: Mapping[str, Any]
) -> Iterator[PyTorchContender]:
  count = form['processes']
  torch.set_num_threads(1)
  network = torch_models.build_network(inputs.workload)
  torch_models.load(network, inputs.initial_weights.values())
  weights = [leaf.detach().share_memory_() for leaf in network.parameters()]
  context = torch.multiprocessing.get_context('spawn')
  pipes = [context.Pipe() for _ in range(1, count)]
  processes = [
    context.Process(
      target=_serve, args=(theirs, inputs.folder, weights, part, count)
    )
    for part, (_, theirs) in enumerate(pipes, start=1)
  ]
  for process in processes:
    process.start()
  trainer = ClientTrainer(inputs, weights, 0, count)
  yield PyTorchContender(inputs, weights, trainer, [own for own, _ in pipes])
  for own, _ in pipes:
    own.send(None)
  for process in processes:
    process.join()


if __name__ == '__main__':
  program.main(_open)
