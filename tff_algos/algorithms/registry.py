"""All algorithms by name. To add one, write its file and add a line here."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tff_algos.algorithms import (
  brain_torrent,
  ditto,
  fed_avg,
  fed_dc,
  fed_dyn,
  fed_em,
  ifca,
  l2gd,
  partial_fed_avg,
  per_fed_avg,
  pfedme,
  scaffold,
)
from tff_algos.algorithms.cfl import cfl
from tff_algos.algorithms.cmfl import cmfl
from tff_algos.algorithms.fed_pac import fed_pac
from tff_algos.algorithms.fed_soft import fed_soft
from tff_algos.algorithms.filter_decomposition import filter_decomposition
from tff_algos.algorithms.gossip import gossip
from tff_algos.algorithms.pfedkm import pfedkm
from tff_algos.algorithms.ppfl import ppfl
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import config as config_lib
from tff_algos.core import model as model_lib
from tff_algos.rounds import lr_schedule, periods


class Entry(NamedTuple):
  """One registered algorithm.

  Attributes:
    config_class: Its options.
    build: (model, options) -> FederatedAlgorithm.
    takes_run_seed: Whether `build` also takes `run_seed`, of what all restarts
      of a run have in common.
  """

  config_class: type
  build: Callable[..., algorithm_lib.FederatedAlgorithm]
  takes_run_seed: bool = False


_CONSTANT = lr_schedule.FallingRatesConfig()

# What filter decomposition goes around.
HOSTS = ('fed_avg', 'fed_dc', 'fed_dyn', 'scaffold')


def _build_filter_decomposition(model, config):
  name, options = _parse_host(config.host)
  build_host = functools.partial(ALGORITHMS[name].build, config=options)
  return filter_decomposition.build_filter_decomposition(
    model, _with_host(config, name, options), build_host
  )


def _with_host(config, name, options):
  """Returns the config with all options of its host, also those by default."""
  return dataclasses.replace(config, host=config_lib.spell(name, options))


def _parse_host(values):
  hosts = {name: ALGORITHMS[name] for name in HOSTS}
  return config_lib.parse_named('config.algorithm.host', values, hosts)


ALGORITHMS: Mapping[str, Entry] = {
  'brain_torrent': Entry(
    brain_torrent.BrainTorrentConfig, brain_torrent.build_brain_torrent
  ),
  'cfl': Entry(cfl.CflConfig, cfl.build_cfl),
  'cmfl': Entry(cmfl.CmflConfig, cmfl.build_cmfl, takes_run_seed=True),
  'ditto': Entry(ditto.DittoConfig, ditto.build_ditto),
  'fed_avg': Entry(fed_avg.FedAvgConfig, fed_avg.build_fed_avg),
  'fed_dc': Entry(fed_dc.FedDcConfig, fed_dc.build_fed_dc),
  'fed_dyn': Entry(fed_dyn.FedDynConfig, fed_dyn.build_fed_dyn),
  'fed_em': Entry(fed_em.FedEmConfig, fed_em.build_fed_em),
  'fed_pac': Entry(fed_pac.FedPacConfig, fed_pac.build_fed_pac),
  'fed_soft': Entry(fed_soft.FedSoftConfig, fed_soft.build_fed_soft),
  'filter_decomposition': Entry(
    filter_decomposition.FilterDecompositionConfig, _build_filter_decomposition
  ),
  'fine_tuning': Entry(ditto.FineTuningConfig, ditto.build_fine_tuning),
  'gossip': Entry(gossip.GossipConfig, gossip.build_gossip),
  'ifca': Entry(ifca.IfcaConfig, ifca.build_ifca),
  'l2gd': Entry(l2gd.L2gdConfig, l2gd.build_l2gd),
  'partial_fed_avg': Entry(
    partial_fed_avg.PartialFedAvgConfig, partial_fed_avg.build_partial_fed_avg
  ),
  'per_fed_avg': Entry(
    per_fed_avg.PerFedAvgConfig, per_fed_avg.build_per_fed_avg
  ),
  'pfedkm': Entry(pfedkm.PFedKMConfig, pfedkm.build_pfedkm),
  'pfedme': Entry(pfedme.PFedMeConfig, pfedme.build_pfedme),
  'ppfl': Entry(ppfl.PpflConfig, ppfl.build_ppfl),
  'scaffold': Entry(scaffold.ScaffoldConfig, scaffold.build_scaffold),
}


def parse_config(values: Mapping[str, Any]) -> tuple[str, Any]:
  """Returns an algorithm's name and options from a config's section.

  Raises:
    ConfigError: If the name or an option is unknown or out of range.
  """
  name, options = config_lib.parse_named('config.algorithm', values, ALGORITHMS)
  if name == 'filter_decomposition':
    options = _with_host(options, *_parse_host(options.host))
  return name, options


def parse_periods(
  values: Mapping[str, Any], falling: lr_schedule.FallingRatesConfig
) -> tuple[str, list[Any]]:
  """Returns an algorithm's name and its options in each period of its rates.

  Args:
    values: As of `parse_config`.
    falling: When rates fall.

  Raises:
    ConfigError: As of `parse_config`, or if no such rate can fall.
  """
  name, options = parse_config(values)
  lowered = falling.lower(config_lib.to_dict(options))[1:]
  rest = [parse_config({'name': name, **one})[1] for one in lowered]
  return name, [options, *rest]


def takes_run_seed(values: Mapping[str, Any]) -> bool:
  """Returns whether an algorithm is built for one seed, not for any."""
  return ALGORITHMS[parse_config(values)[0]].takes_run_seed


def build_algorithm(
  values: Mapping[str, Any],
  model: model_lib.Model,
  *,
  run_seed: int = 0,
  falling: lr_schedule.FallingRatesConfig = _CONSTANT,
) -> algorithm_lib.FederatedAlgorithm:
  """Builds the algorithm that a config's `algorithm` section names.

  Args:
    values: `name` and the algorithm's options.
    model: The model to train.
    run_seed: The run's seed, that of no restart.
    falling: When learning rates fall.

  Raises:
    ConfigError: If the section is wrong.
  """
  name, options = parse_periods(values, falling)
  entry = ALGORITHMS[name]
  common = {'run_seed': run_seed} if entry.takes_run_seed else {}
  return periods.in_turn(
    [entry.build(model, one, **common) for one in options], falling.period
  )
