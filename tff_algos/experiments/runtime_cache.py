"""Runtime cache across sessions, so that graphs are traced once.

Tracing takes seconds, as long as a small run. Training and evaluation of a run,
and runs that differ by their seeds only, share their graphs.
"""

import contextlib
from typing import Any

import numpy as np

from tff_algos.algorithms import registry as algorithms
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import config as config_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import experiment
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import registry as runtimes
from tff_algos.runtimes.distributed import process_group


class KeptRuntime:
  """Cache of the algorithm and the runtime of the last session."""

  def __init__(self):
    """Creates an empty cache."""
    self._key: Any = None
    self._stack = contextlib.ExitStack()

  def __enter__(self) -> 'KeptRuntime':
    return self

  def __exit__(self, *exc_info: Any) -> None:
    self.close()

  def open(
    self,
    config: experiment.ExperimentConfig,
    dataset: dataset_lib.FederatedDataset,
    group: process_group.ProcessGroup = process_group.ALONE,
  ) -> tuple[algorithm_lib.FederatedAlgorithm, cohort_lib.Runtime]:
    """Returns the cached algorithm and runtime if they fit, or builds them.

    Args:
      config: The experiment.
      dataset: Dataset, open.
      group: The processes that share each cohort; the cache is for a single
        process.

    Returns:
      The algorithm, and its runtime, entered.
    """
    key = (_computation(config, dataset), group)
    if key != self._key:
      self.close()
      self._algorithm = experiment.build_algorithm(config, dataset)
      self._runtime = self._stack.enter_context(
        runtimes.build_runtime(
          config.runtime, self._algorithm, len(dataset.client_ids), group
        )
      )
      self._key = key
    return self._algorithm, self._runtime  # pyright: ignore[reportReturnType]

  def close_after_failure(self, *exc_info: Any) -> None:
    """Exits the runtime after an error, which leaves its state unknown."""
    if exc_info[0] is not None:
      self.close()

  def close(self) -> None:
    """Exits the runtime, if there is one."""
    self._key = self._algorithm = self._runtime = None
    self._stack.close()


def _computation(config, dataset) -> dict[str, Any]:
  """Returns the config entries that affect the graphs; mostly not the seed."""
  attackers = experiment.find_attackers(config, dataset)
  decides = {
    **experiment.identity(config, dataset),
    **config.continuation.identity(),  # The noise follows from it.
    'runtime': config_lib.to_dict(config.runtime),
    'attackers': np.flatnonzero(attackers).tolist(),
    # Of it an identity may lack the budget, which ends a run.
    'privacy': config_lib.to_dict(config.privacy),
  }
  if not algorithms.ALGORITHMS[config.algorithm.name].takes_run_seed:
    del decides['seed']
  return decides
