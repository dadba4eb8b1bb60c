"""All runtimes by name."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import checks, errors
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes.distributed import process_group
from tff_algos.runtimes.tff import tff_config
from tff_algos.runtimes.vectorized import vectorized_runtime


def _build_tff_runtime(*arguments: Any) -> cohort_lib.Runtime:
  """Builds the TFF runtime, the only one that needs TFF to be installed."""
  try:
    from tff_algos.runtimes.tff import tff_runtime
  except ModuleNotFoundError as error:
    if error.name != 'tensorflow_federated':
      raise
    raise errors.ConfigError(
      "config.runtime.name 'tff' needs the package tensorflow-federated, which "
      "is not installed; install it, or take 'vectorized' or 'debug'"
    ) from error
  return tff_runtime.TffRuntime(*arguments)


RUNTIMES: Mapping[str, Callable[..., cohort_lib.Runtime]] = {
  'tff': _build_tff_runtime,
  'vectorized': vectorized_runtime.VectorizedRuntime,
  'debug': debug_runtime.DebugRuntime,
}


@dataclasses.dataclass(frozen=True)
class RuntimeConfig:
  """Which runtime, and the options of each, so that a name alone switches.

  Attributes:
    name: `'vectorized'`, `'tff'` or `'debug'`.
    vectorized: Options of the vectorized runtime.
    tff: Options of the TFF runtime.
    debug: Options of the debug runtime.
  """

  name: str = 'vectorized'
  vectorized: vectorized_runtime.VectorizedConfig = (
    vectorized_runtime.VectorizedConfig()
  )
  tff: tff_config.TffConfig = tff_config.TffConfig()
  debug: debug_runtime.DebugConfig = debug_runtime.DebugConfig()

  def __post_init__(self):
    checks.check_one_of('name', self.name, tuple(RUNTIMES))


def build_runtime(
  config: RuntimeConfig,
  algorithm: algorithm_lib.FederatedAlgorithm,
  num_clients: int,
  group: process_group.ProcessGroup = process_group.ALONE,
) -> cohort_lib.Runtime:
  """Builds the runtime that a config names.

  Args:
    config: Which one, and its options.
    algorithm: What to run.
    num_clients: Size of the population.
    group: The processes that share each cohort.

  Raises:
    ConfigError: If the runtime knows no other processes, or is not installed.
  """
  arguments = [algorithm, num_clients, getattr(config, config.name)]
  if group is not process_group.ALONE:
    if config.name != 'vectorized':
      raise errors.ConfigError(
        'several processes (TF_CONFIG) need config.runtime.name=vectorized, '
        f'got {config.name!r}'
      )
    arguments.append(group)
  return RUNTIMES[config.name](*arguments)
