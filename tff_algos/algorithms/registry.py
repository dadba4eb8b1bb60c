"""All algorithms by name. To add one, write its file and add a line here."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tff_algos.algorithms import fed_avg, fed_soft, ifca
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import config as config_lib
from tff_algos.core import model as model_lib
from tff_algos.stages import phase_types


class Entry(NamedTuple):
  """One registered algorithm.

  Attributes:
    config_class: Its options.
    build: (model, options) -> FederatedAlgorithm.
  """

  config_class: type
  build: Callable[[model_lib.Model, Any], algorithm_lib.FederatedAlgorithm]


ALGORITHMS: Mapping[str, Entry] = {
  'fed_avg': Entry(fed_avg.FedAvgConfig, fed_avg.build_fed_avg),
  'fed_soft': Entry(fed_soft.FedSoftConfig, fed_soft.build_fed_soft),
  'ifca': Entry(ifca.IfcaConfig, ifca.build_ifca),
}


def parse_config(values: Mapping[str, Any]) -> tuple[str, Any]:
  """Returns an algorithm's name and options from a config's section.

  Raises:
    ConfigError: If the name or an option is unknown or out of range.
  """
  return config_lib.parse_named('config.algorithm', values, ALGORITHMS)


def build_algorithm(
  values: Mapping[str, Any], model: model_lib.Model
) -> algorithm_lib.FederatedAlgorithm:
  """Builds the algorithm that a config's `algorithm` section names.

  Every phase is traced once, so that stages which do not fit each other are
  found here and not in some later round.

  Args:
    values: `name` and the algorithm's options.
    model: The model to train.

  Raises:
    ConfigError: If the section is wrong.
    StageTypeError: If two stages do not fit.
  """
  name, options = parse_config(values)
  algorithm = ALGORITHMS[name].build(model, options)
  phase_types.check_algorithm(algorithm)
  return algorithm
