"""All runtimes by name."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import config as config_lib
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import debug_runtime, tff_runtime, vectorized_runtime


class Entry(NamedTuple):
  """One registered runtime.

  Attributes:
    config_class: Its options.
    build: (algorithm, number of clients, options) -> Runtime.
  """

  config_class: type
  build: Callable[
    [algorithm_lib.FederatedAlgorithm, int, Any], cohort_lib.Runtime
  ]


RUNTIMES: Mapping[str, Entry] = {
  'tff': Entry(tff_runtime.TffConfig, tff_runtime.TffRuntime),
  'vectorized': Entry(
    vectorized_runtime.VectorizedConfig, vectorized_runtime.VectorizedRuntime
  ),
  'debug': Entry(debug_runtime.DebugConfig, debug_runtime.DebugRuntime),
}


def parse_config(values: Mapping[str, Any]) -> tuple[str, Any]:
  """Returns a runtime's name and options from a config's `runtime` section.

  Raises:
    ConfigError: If the name or an option is unknown or out of range.
  """
  return config_lib.parse_named('config.runtime', values, RUNTIMES)


def build_runtime(
  values: Mapping[str, Any],
  algorithm: algorithm_lib.FederatedAlgorithm,
  num_clients: int,
) -> cohort_lib.Runtime:
  """Builds the runtime that a config's `runtime` section names.

  Args:
    values: `name` and the runtime's options.
    algorithm: What to run.
    num_clients: Size of the population.

  Raises:
    ConfigError: If the section is wrong.
  """
  name, options = parse_config(values)
  return RUNTIMES[name].build(algorithm, num_clients, options)
