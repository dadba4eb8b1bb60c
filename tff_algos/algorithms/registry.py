"""Registry of algorithms by name.

A new algorithm is one line here; one of a plug-in calls `register_algorithm`.
"""

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
from tff_algos.core import errors, plugins
from tff_algos.core import model as model_lib
from tff_algos.rounds import lr_schedule, periods


class Entry(NamedTuple):
  """One registered algorithm.

  Attributes:
    config_class: Dataclass of the algorithm's options.
    build: (model, options) -> FederatedAlgorithm.
    takes_run_seed: Whether `build` also takes `run_seed`, the seed of draws
      that are common to all restarts of a run.
  """

  config_class: type
  build: Callable[..., algorithm_lib.FederatedAlgorithm]
  takes_run_seed: bool = False


_CONSTANT = lr_schedule.LrScheduleConfig()

# Host algorithms of filter decomposition; the first is the default.
HOSTS = ('fed_avg', 'fed_dc', 'fed_dyn', 'scaffold')


def _build_filter_decomposition(model, config):
  name, options = config.host
  return filter_decomposition.build_filter_decomposition(
    model, config, functools.partial(ALGORITHMS[name].build, config=options)
  )


ALGORITHMS: dict[str, Entry] = {
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


def register_algorithm(
  name: str,
  config_class: type,
  build: Callable[..., algorithm_lib.FederatedAlgorithm],
) -> None:
  """Registers an algorithm under a name for configs, as a plug-in does.

  Args:
    name: Name in `config.algorithm`: lower-case letters, digits and
      underscores.
    config_class: Dataclass of its options.
    build: (model, options) -> FederatedAlgorithm.

  Raises:
    ConfigError: If the name is taken or malformed, or the options are no
      dataclass of fields that configs read.
  """
  plugins.register(ALGORITHMS, 'algorithm', name, Entry(config_class, build))


def parse_config(values: Mapping[str, Any]) -> config_lib.Named:
  """Returns an algorithm's name and options from a config's section.

  Raises:
    ConfigError: If the name or an option is unknown or out of range.
  """
  if isinstance(values, Mapping) and (
    values.get('name') == 'filter_decomposition'
  ):
    host = values.get('host', {'name': HOSTS[0]})
    hosts = {name: ALGORITHMS[name] for name in HOSTS}
    named = config_lib.parse_named('config.algorithm.host', host, hosts)
    values = {**values, 'host': named}
  return config_lib.parse_named('config.algorithm', values, ALGORITHMS)


def periods_of(
  section: config_lib.Named, schedule: lr_schedule.LrScheduleConfig
) -> list[Any]:
  """Returns an algorithm's options in each period of constant rates.

  Raises:
    ConfigError: If the schedule does not apply to the algorithm's rates.
  """
  name, options = section
  if (
    schedule.after_rounds
    and not schedule.rates
    and getattr(options, 'steps_at_server', False)
  ):
    raise errors.ConfigError(
      'lr_schedule.after_rounds is given, but with these options models of '
      f'{name!r} move by the rate of the server, which decays only if named; '
      "set lr_schedule.rates to ('server_learning_rate',)"
    )
  lowered = schedule.lower(config_lib.to_dict(options))[1:]
  return [options, *(parse_config({'name': name, **one})[1] for one in lowered)]


def build_algorithm(
  section: config_lib.Named,
  model: model_lib.Model,
  *,
  run_seed: int | None = None,
  schedule: lr_schedule.LrScheduleConfig = _CONSTANT,
) -> algorithm_lib.FederatedAlgorithm:
  """Builds the algorithm of a config's `algorithm` section.

  >>> import tff_algos
  >>> model = tff_algos.build_model(
  ...   tff_algos.parse_model({'name': 'logistic_regression'}),
  ...   task='classification',
  ...   input_shape=(4,),
  ...   num_outputs=3,
  ... )
  >>> section = tff_algos.parse_algorithm({'name': 'ifca', 'num_clusters': 3})
  >>> tff_algos.build_algorithm(section, model).num_clusters
  3

  Args:
    section: The algorithm's name and its options.
    model: The model to train.
    run_seed: The run's own seed, not that of a restart; None for the seed with
      which rounds are planned.
    schedule: Learning-rate schedule.

  Raises:
    ConfigError: If the schedule does not apply to the options.
  """
  entry = ALGORITHMS[section.name]
  common = {'run_seed': run_seed} if entry.takes_run_seed else {}
  return periods.in_turn(
    [
      entry.build(model, one, **common) for one in periods_of(section, schedule)
    ],
    schedule.period,
  )
