"""FedAvg and IFCA written by hand in PyTorch: loops over clients and batches.

Examples and the weights' sum are resident tensors. Timed: the whole round, in
all processes.

Forms: `processes`, of one thread each. Each trains its share of the clients,
the first of them in the contender itself; they read the weights and leave their
sums in shared memory.
"""

import contextlib
import copy
import pathlib
from collections.abc import Iterator, Mapping
from multiprocessing import connection
from typing import Any

import numpy as np
import torch
import torch.multiprocessing
from torch import nn
from torch.nn import functional

from benchmarks import workload as workload_lib
from benchmarks.contenders import program, torch_models


class ClientTrainer:
  """Trains the clients of one process.

  Attributes:
    sums: The sums of their weights after the last round, a network a model.
    counts: How many clients are in each, `[num_models]`.
  """

  def __init__(
    self,
    inputs: workload_lib.Inputs,
    models: nn.ModuleList,
    part: int,
    num_parts: int,
  ):
    """Loads the examples.

    Args:
      inputs: Of the case.
      models: The model, or the cluster models; read in every round.
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
    self._models = models
    self._order = torch.empty(0)
    self._network = torch_models.build_network(inputs.workload)
    self.sums = copy.deepcopy(models).share_memory()
    self.counts = torch.zeros(len(models)).share_memory_()

  def prepare(self, round_num: int) -> None:
    """Loads which rows each step reads."""
    order = self._inputs.order(round_num)[self._clients]
    self._order = torch.from_numpy(order.astype(np.int64))

  @torch.no_grad()
  def train(self) -> None:
    """Trains all clients, one after the other."""
    for leaf in (*self.sums.parameters(), self.counts):
      leaf.zero_()
    local = list(self._network.parameters())
    for x, y, order in zip(self._x, self._y, self._order, strict=True):
      best = self._choose(x, y)
      torch._foreach_copy_(local, list(self._models[best].parameters()))
      self._train_one(x, y, order)
      torch._foreach_add_(list(self.sums[best].parameters()), local)
      self.counts[best] += 1

  def _choose(self, x: torch.Tensor, y: torch.Tensor) -> int:
    """Returns the model with the smallest loss on all examples."""
    if len(self._models) == 1:
      return 0
    losses = [functional.cross_entropy(model(x), y) for model in self._models]
    return int(torch.argmin(torch.stack(losses)))

  def _train_one(
    self, x: torch.Tensor, y: torch.Tensor, order: torch.Tensor
  ) -> None:
    """Trains the network on one client's examples."""
    local = list(self._network.parameters())
    rate = self._inputs.workload.learning_rate
    for rows in order:
      with torch.enable_grad():
        loss = functional.cross_entropy(self._network(x[rows]), y[rows])
        gradient = torch.autograd.grad(loss, local)
      torch._foreach_add_(local, gradient, alpha=-rate)


class PyTorchContender:
  """One form."""

  def __init__(
    self,
    inputs: workload_lib.Inputs,
    models: nn.ModuleList,
    trainer: ClientTrainer,
    others: list[connection.Connection],
  ):
    """Puts together what `_open` has started.

    Args:
      inputs: Of the case.
      models: The model, or the cluster models; in shared memory.
      trainer: This process's.
      others: To the other processes, which have sent their sums.
    """
    self._inputs = inputs
    self._models = models
    self._trainer = trainer
    self._others = others
    parts = [(trainer.sums, trainer.counts), *(one.recv() for one in others)]
    self._sums, self._counts = zip(*parts, strict=True)

  def prepare(self, round_num: int) -> None:
    """Has all processes load which rows each step reads."""
    for other in self._others:
      other.send(round_num)
    self._trainer.prepare(round_num)
    for other in self._others:
      other.recv()

  @torch.no_grad()
  def run_round(self, round_num: int) -> None:
    """Trains in all processes, and sets each model to its clients' mean."""
    for other in self._others:
      other.send(round_num)
    self._trainer.train()
    for other in self._others:
      other.recv()
    counts = sum(self._counts)
    for i, model in enumerate(self._models):
      if counts[i] > 0:
        sums = [part[i].parameters() for part in self._sums]
        for leaf, *parts in zip(model.parameters(), *sums, strict=True):
          torch.div(sum(parts), counts[i], out=leaf)

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the model, or the cluster models stacked."""
    names = self._inputs.initial_weights
    models = [
      torch_models.named_weights(names, model.parameters())
      for model in self._models
    ]
    if self._inputs.workload.algorithm == workload_lib.FED_AVG:
      return models[0]
    return {name: np.stack([model[name] for model in models]) for name in names}


def _serve(
  pipe: connection.Connection, folder: pathlib.Path, models, part, num_parts
) -> None:
  """Trains a share of the clients in a process of its own, until told None."""
  torch.set_num_threads(1)
  trainer = ClientTrainer(workload_lib.Inputs(folder), models, part, num_parts)
  pipe.send((trainer.sums, trainer.counts))
  # Each round is announced twice: to prepare, and to train.
  while (round_num := pipe.recv()) is not None:
    trainer.prepare(round_num)
    pipe.send(round_num)
    pipe.recv()
    trainer.train()
    pipe.send(round_num)


def _initial_models(inputs: workload_lib.Inputs) -> nn.ModuleList:
  """Returns the model, or the cluster models; in shared memory."""
  leaves = list(inputs.initial_weights.values())
  is_clustered = inputs.workload.algorithm == workload_lib.IFCA
  models = nn.ModuleList()
  for weights in zip(*leaves, strict=True) if is_clustered else [leaves]:
    network = torch_models.build_network(inputs.workload)
    torch_models.load(network, weights)
    models.append(network)
  return models.share_memory()


@contextlib.contextmanager
def _open(
  inputs: workload_lib.Inputs, form: Mapping[str, Any]
) -> Iterator[PyTorchContender]:
  count = form['processes']
  torch.set_num_threads(1)
  models = _initial_models(inputs)
  context = torch.multiprocessing.get_context('spawn')
  pipes = [context.Pipe() for _ in range(1, count)]
  processes = [
    context.Process(
      target=_serve,
      args=(theirs, inputs.folder, models, part, count),
      daemon=True,
    )
    for part, (_, theirs) in enumerate(pipes, start=1)
  ]
  for process, (_, theirs) in zip(processes, pipes, strict=True):
    process.start()
    # Else the death of the process would not end its pipe.
    theirs.close()
  trainer = ClientTrainer(inputs, models, 0, count)
  yield PyTorchContender(inputs, models, trainer, [own for own, _ in pipes])
  for own, _ in pipes:
    own.send(None)
  for process in processes:
    process.join()


if __name__ == '__main__':
  program.main(_open)
