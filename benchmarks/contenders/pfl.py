"""pfl as it comes: `FederatedAveraging` on a `SimulatedBackend`, in PyTorch.

The users' data are tensors in the round's order, made before the clock starts;
pfl cuts the batches. Timed: `FederatedAveraging.run` for one more central
iteration: users sampled, trained, aggregated, the central optimizer's step.

Forms: `threads` of an operation, in one process.
"""

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from pfl import algorithm, hyperparam
from pfl.aggregate import simulate
from pfl.data import federated_dataset, sampling
from pfl.data import pytorch as pytorch_data
from pfl.model import pytorch as pytorch_model
from torch.nn import functional

from benchmarks import workload as workload_lib
from benchmarks.contenders import program, torch_models

# Evaluation is not part of the work; iteration 0 cannot be kept from it.
_NEVER = 1_000_000


class _Module(torch.nn.Module):
  """A network with the two methods that pfl asks for."""

  def __init__(self, network: torch.nn.Module):
    super().__init__()
    self.network = network

  def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(self.network(x), y)

  def metrics(self, x: torch.Tensor, y: torch.Tensor) -> Mapping[str, object]:
    del x, y
    return {}


class PflContender:
  """A model, a backend and an algorithm."""

  def __init__(self, inputs: workload_lib.Inputs):
    """Loads the examples and builds the three."""
    workload = inputs.workload
    x, y = inputs.examples
    self._inputs = inputs
    self._x = torch.from_numpy(torch_models.images(x))
    self._y = torch.from_numpy(y.astype(np.int64))
    self._users: list[pytorch_data.PyTorchTensorDataset] = []
    network = torch_models.build_network(workload)
    torch_models.load(network, inputs.initial_weights.values())
    self._model = pytorch_model.PyTorchModel(
      _Module(network),
      local_optimizer_create=torch.optim.SGD,
      central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    users = federated_dataset.FederatedDataset(
      lambda user_id: self._users[user_id],
      sampling.get_user_sampler('minimize_reuse', range(workload.num_clients)),
    )
    self._backend = simulate.SimulatedBackend(users, val_data=None)
    self._algorithm = algorithm.FederatedAveraging()
    self._train_params = hyperparam.NNTrainHyperParams(
      local_batch_size=workload.batch_size,
      local_num_epochs=1,
      local_learning_rate=workload.learning_rate,
    )

  def prepare(self, round_num: int) -> None:
    """Builds the users' datasets in the order of a round."""
    order = torch.from_numpy(self._inputs.order(round_num).astype(np.int64))
    self._users = [
      pytorch_data.PyTorchTensorDataset(
        (x[rows], y[rows]), user_id=str(user_id)
      )
      for user_id, (x, y, rows) in enumerate(
        zip(self._x, self._y, order.flatten(1), strict=True)
      )
    ]

  def run_round(self, round_num: int) -> None:
    """Runs one central iteration more."""
    self._algorithm.run(
      algorithm.NNAlgorithmParams(
        central_num_iterations=round_num,
        evaluation_frequency=_NEVER,
        train_cohort_size=self._inputs.workload.num_clients,
        val_cohort_size=0,
      ),
      self._backend,
      self._model,
      self._train_params,
    )

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the model."""
    return torch_models.named_weights(
      self._inputs.initial_weights, self._model.pytorch_model.parameters()
    )


@contextlib.contextmanager
def _open(inputs, form) -> Iterator[PflContender]:
  torch.set_num_threads(form['threads'])
  yield PflContender(inputs)


if __name__ == '__main__':
  program.main(_open)
