"""What Flower's actors run; a module, so that they import it once.

Each actor keeps the examples of the whole workload in memory.
"""

import functools
import pathlib

import numpy as np
import torch
from flwr import app, clientapp
from torch.nn import functional

from benchmarks import workload as workload_lib
from benchmarks.contenders import torch_models

ARRAYS = 'arrays'
CONFIG = 'config'
FOLDER = 'folder'
ROUND_NUM = 'round-num'
CLIENT = clientapp.ClientApp()


class _Trainer:
  """Trains any client."""

  def __init__(self, folder: str):
    """Loads the examples of a folder's workload."""
    torch.set_num_threads(1)
    self._inputs = workload_lib.Inputs(pathlib.Path(folder))
    x, y = self._inputs.examples
    self._x = torch.from_numpy(torch_models.images(x))
    self._y = torch.from_numpy(y.astype(np.int64))
    self.network = torch_models.build_network(self._inputs.workload)

  def train(self, client_index: int, round_num: int) -> int:
    """Trains the network; returns the number of examples."""
    workload = self._inputs.workload
    order = self._inputs.order(round_num)[client_index].astype(np.int64)
    x, y = self._x[client_index], self._y[client_index]
    optimizer = torch.optim.SGD(
      self.network.parameters(), lr=workload.learning_rate
    )
    for rows in torch.from_numpy(order):
      optimizer.zero_grad()
      functional.cross_entropy(self.network(x[rows]), y[rows]).backward()
      optimizer.step()
    return order.size


_trainer = functools.lru_cache(maxsize=1)(_Trainer)


@CLIENT.train()
def train(message: app.Message, context: app.Context) -> app.Message:
  """Answers with one client's weights after training."""
  config = message.content[CONFIG]
  trainer = _trainer(config[FOLDER])
  trainer.network.load_state_dict(message.content[ARRAYS].to_torch_state_dict())
  num_examples = trainer.train(
    context.node_config['partition-id'], config[ROUND_NUM]
  )
  return app.Message(
    content=app.RecordDict(
      {
        ARRAYS: app.ArrayRecord(trainer.network.state_dict()),
        'metrics': app.MetricRecord({'num-examples': num_examples}),
      }
    ),
    reply_to=message,
  )
