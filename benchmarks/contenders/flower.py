"""Flower as it comes: `run_simulation` on Ray actors, with PyTorch clients.

One actor a core, of one thread, runs the `ClientApp` for one virtual node after
the other. Timed: `FedAvg.start` for one round, called by the `ServerApp`, which
waits between the rounds. Evaluation by the clients is off.
"""

import contextlib
import os
import queue
import tempfile
import threading
from collections.abc import Iterator, Mapping

import numpy as np

# Before Flower and Ray: nothing is told to their makers or left at home.
os.environ.update(
  FLWR_TELEMETRY_ENABLED='0',
  FLWR_HOME=tempfile.gettempdir(),
  RAY_USAGE_STATS_ENABLED='0',
)

from flwr import app, serverapp, simulation  # noqa: E402
from flwr.serverapp import strategy  # noqa: E402

from benchmarks import workload as workload_lib  # noqa: E402
from benchmarks.contenders import (  # noqa: E402
  flower_client,
  program,
  torch_models,
)

_NUM_REPLIES = 'num-replies'


class FlowerContender:
  """A simulation in a thread of its own, told round by round to go on."""

  def __init__(self, inputs: workload_lib.Inputs):
    """Starts the simulation."""
    self._inputs = inputs
    network = torch_models.build_network(inputs.workload)
    torch_models.load(network, inputs.initial_weights.values())
    self._arrays = app.ArrayRecord(network.state_dict())
    # Number of the round to run, or None for the end.
    self._rounds: queue.Queue[int | None] = queue.Queue()
    self._results: queue.Queue[strategy.Result | Exception] = queue.Queue()
    self._thread = threading.Thread(target=self._simulate, daemon=True)
    self._thread.start()

  def prepare(self, round_num: int) -> None:
    """Does nothing: an actor reads the order of a client when it trains it."""

  def run_round(self, round_num: int) -> None:
    """Lets the server run one round, and waits for it.

    Raises:
      RuntimeError: If not all clients have answered.
    """
    self._rounds.put(round_num)
    result = self._results.get()
    if isinstance(result, Exception):
      raise result
    num_replies = sum(
      metrics[_NUM_REPLIES]
      for metrics in result.train_metrics_clientapp.values()
    )
    if num_replies != self._inputs.workload.num_clients:
      raise RuntimeError(f'only {num_replies} clients have answered')
    self._arrays = result.arrays

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the model."""
    return torch_models.named_weights(
      self._inputs.initial_weights, self._arrays.to_torch_state_dict().values()
    )

  def close(self) -> None:
    """Ends the simulation and its actors."""
    self._rounds.put(None)
    self._thread.join()

  def _simulate(self) -> None:
    num_cores = len(os.sched_getaffinity(0))
    server = serverapp.ServerApp()
    server.main()(self._serve)
    try:
      simulation.run_simulation(
        server,
        flower_client.CLIENT,
        num_supernodes=self._inputs.workload.num_clients,
        backend_config={
          'client_resources': {'num_cpus': 1, 'num_gpus': 0.0},
          'init_args': {
            'num_cpus': num_cores,
            'num_gpus': 0,
            '_temp_dir': tempfile.gettempdir(),
          },
        },
      )
    except Exception as error:
      self._results.put(error)

  def _serve(self, grid: serverapp.Grid, context: app.Context) -> None:
    del context
    fed_avg = strategy.FedAvg(
      fraction_evaluate=0.0,
      # Else the first round would take only those nodes that are there already.
      min_train_nodes=self._inputs.workload.num_clients,
      min_available_nodes=self._inputs.workload.num_clients,
      train_metrics_aggr_fn=lambda replies, key: app.MetricRecord(
        {_NUM_REPLIES: len(replies)}
      ),
    )
    while (round_num := self._rounds.get()) is not None:
      result = fed_avg.start(
        grid,
        self._arrays,
        num_rounds=1,
        train_config=app.ConfigRecord(
          {
            flower_client.FOLDER: str(self._inputs.folder),
            flower_client.ROUND_NUM: round_num,
          }
        ),
      )
      self._results.put(result)


@contextlib.contextmanager
def _open(inputs, form) -> Iterator[FlowerContender]:
  del form
  contender = FlowerContender(inputs)
  try:
    yield contender
  finally:
    # Also after an error: its threads would keep the process.
    contender.close()


if __name__ == '__main__':
  program.main(_open)
