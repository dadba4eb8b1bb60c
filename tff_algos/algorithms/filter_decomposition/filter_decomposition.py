"""Filter decomposition: separate averages of kernels' atoms and coefficients.

Chen and Qiu, "Extra Clients at No Extra Cost: Overcome Data Heterogeneity in
Federated Learning with Filter Decomposition" (2025), arXiv:2503.08652.

It wraps another algorithm, the host, on a network with factored kernels
(config.model.decomposition): kernel = coefficients alpha x atoms D.

Round t of Algorithm 1:
  plan, make_message, client_work
                  the host's: clients train all factors and the head together
  aggregation     the host's mean, of each group of weights: alpha, D,
                  hidden, head, other
  server_update   the host's. Kernels of the new model are mean alpha x mean D

Algorithm 2 (slow_period = 1 / beta > 1): rounds 1, 1 + slow_period, ... are
full rounds as above. In the others (`fast`) only `fast_groups` are sent and
averaged, and the other weights of the server's model are unchanged.

Local atoms (section 4.1, own = 'atoms'): a client also keeps private atoms,
trained with the received coefficients and head frozen.

Names: beta = 1 / slow_period, D_l = own weights (`local_atoms`).
Readings: fast_groups are atoms and head, as printed in Algorithm 2; the text
  has ('atoms',). The head is the last layer, all other layers are slow.
  `schedule.fast_rounds` sets the treatment of coefficients in fast rounds.
Hosts that keep states of all groups at clients (SCAFFOLD, FedDyn, FedDC) have
  no fast rounds, and no averages that factor kernels anew.
Reductions (tested): slow_period = 1 and no local atoms = the host on the same
  network, bit for bit; so is the global model with local atoms.
Cost: the host's; in a fast round without the slow groups, both ways. As in the
  paper, the download of coefficients by clients that were not sampled since the
  last full round is not counted.
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.filter_decomposition import (
  filter_groups,
  grouped_aggregation,
  slow_weights,
)
from tff_algos.algorithms.filter_decomposition import (
  local_atoms as local_atoms_lib,
)
from tff_algos.core import algorithm, checks, errors
from tff_algos.core import config as config_lib
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation, composer
from tff_algos.stages.server import global_model, server_optimizer

AVERAGINGS = ('factors', 'balanced_factors', 'kernels')


@dataclasses.dataclass(frozen=True)
class FilterDecompositionConfig:
  """Options of filter decomposition.

  Attributes:
    host: Name and options of the host in `algorithms.registry`.
    averaging: Averaged quantities: `'factors'`; or as controls
      `'balanced_factors'`, whose product is then factored anew, or `'kernels'`,
      which are, too (see `grouped_aggregation`).
    schedule: Communication schedule of fast and slow weights.
    local_atoms: Options of private atoms.
  """

  host: config_lib.Named
  averaging: str = 'factors'
  schedule: slow_weights.ScheduleConfig = slow_weights.ScheduleConfig()
  local_atoms: local_atoms_lib.LocalAtomsConfig = (
    local_atoms_lib.LocalAtomsConfig()
  )

  def __post_init__(self):
    checks.check_one_of('averaging', self.averaging, AVERAGINGS)
    if self.schedule.persists and getattr(
      self.host.options, 'proximal_weight', 0
    ):
      raise errors.ConfigError(
        f"fast_rounds is 'persist', with which clients start from slow weights "
        f'of their own, and host {self.host.name!r} has proximal_weight '
        f'{self.host.options.proximal_weight}, which would pull towards these; '
        "set proximal_weight to 0 or fast_rounds to 'discard' or 'freeze'"
      )
    if not self.factors_anew:
      return
    made = f'averaging {self.averaging!r} makes other factors in every round'
    if self.schedule.slow_period > 1:
      raise errors.ConfigError(
        f'slow_period is {self.schedule.slow_period}, but {made}, of which '
        "none can be left out; set slow_period to 1 or averaging to 'factors'"
      )
    if self.local_atoms.is_on:
      raise errors.ConfigError(
        f"own is {self.local_atoms.own!r}, but {made}, to which a client's own "
        "atoms do not belong; set own to 'nothing' or averaging to 'factors'"
      )

  @property
  def personalizes_after(self) -> tuple[str, int]:
    """Returns the option of rounds between personalizations, and its value.

    0 if clients train their own weights in the rounds in which they are drawn,
    or have none.
    """
    own = self.local_atoms
    is_apart = own.is_on and not own.in_every_round
    return 'local_atoms.refit_interval', own.refit_interval if is_apart else 0

  @property
  def factors_anew(self) -> bool:
    """Whether the server factors the new kernels in every round."""
    return self.averaging != 'factors'


class ClientState(NamedTuple):
  """Client state between rounds.

  Attributes:
    host: The host's state.
    own: The client's own weights, `local_atoms_lib.OwnWeights`; or `()`.
    slow: The client's slow weights, `slow_weights.Kept`; or `()`.
  """

  host: Any
  own: Any
  slow: Any


def build_filter_decomposition(
  model: model_lib.Model,
  config: FilterDecompositionConfig,
  build_host: Callable[[model_lib.Model], algorithm.FederatedAlgorithm],
) -> algorithm.FederatedAlgorithm:
  """Builds filter decomposition around a host.

  >>> from tff_algos.algorithms import fed_avg
  >>> from tff_algos.models import registry
  >>> model = registry.build_model(
  ...   registry.parse_config(
  ...     {'name': 'small_cnn', 'decomposition': {'num_atoms': 3}}
  ...   ),
  ...   task='classification',
  ...   input_shape=(16, 16, 1),
  ...   num_outputs=3,
  ... )
  >>> host = config_lib.Named('fed_avg', fed_avg.FedAvgConfig())
  >>> decomposed = build_filter_decomposition(
  ...   model,
  ...   FilterDecompositionConfig(host),
  ...   lambda model: fed_avg.build_fed_avg(model, host.options),
  ... )
  >>> sorted(decomposed.phases)
  ['train']

  Args:
    model: A model with decomposed convolutions; with another model the result
      is the host, and options that need atoms are refused.
    config: Options.
    build_host: model -> the host with its options.

  Raises:
    ConfigError: If options need atoms and the model has none, or do not fit the
      host.
  """
  host = build_host(model)
  _check(model, host, config)
  train = host.phases['train']
  phases = {'train': _wrap(train, model, config, is_full=True)}
  if config.schedule.slow_period > 1:
    if config.schedule.fast_rounds == 'freeze':
      train = slow_weights.freeze(
        train, model, config.schedule, lambda fast: build_host(fast).phases
      )
    phases['fast'] = _wrap(train, model, config, is_full=False)
  if config.local_atoms.is_on and config.local_atoms.refit_interval:
    phases['refit'] = _build_refit(model, config)

  def init_client_state(run_seed, client_seed):
    own, schedule = config.local_atoms, config.schedule
    return ClientState(
      host.init_client_state(run_seed, client_seed),
      local_atoms_lib.initial(model, own) if own.is_on else (),
      slow_weights.initial(model, schedule) if schedule.persists else (),
    )

  def personalized_weights(server_state, client_state, client_index):
    del client_index
    weights = server_state.model_weights
    if not config.local_atoms.is_on:
      return weights
    return client_state.own.serve(weights)

  return dataclasses.replace(
    host,
    name='filter_decomposition',
    init_client_state=init_client_state,
    phases=phases,
    plan_round=_build_plan(host, model, config),
    personalized_weights=personalized_weights,
    serves_global=host.serves_global and not config.local_atoms.is_on,
  )


def _check(model, host, config):
  slow_period, own = config.schedule.slow_period, config.local_atoms.own
  _check_takes_mean(host)
  if slow_period > 1:
    slow_weights.check_fits(model, config.schedule)
    _check_has_fast_rounds(host, config.host.options, slow_period)
  if config.factors_anew:
    filter_groups.check_has_atoms(model, f'averaging {config.averaging!r}')
    _check_forgets_factors(host, config.host.options, config.averaging)
  if config.local_atoms.is_on:
    filter_groups.check_has_atoms(model, f'local_atoms.own {own!r}')


def _check_takes_mean(host):
  """Raises ConfigError unless the host takes the mean of `local_weights`."""
  aggregator = host.phases['train'].aggregation['local_weights']
  if not isinstance(aggregator, aggregation.WeightedMean):
    raise errors.ConfigError(
      f'host {host.name!r} takes no mean of its local_weights, which filter '
      "decomposition parts by groups; give it the aggregation rule 'mean', "
      'without mixes_nearest_neighbors'
    )


def _check_has_fast_rounds(host, options, slow_period):
  """Raises ConfigError if some weights of the host cannot stay behind."""
  step = getattr(options, 'server_optimizer', None)
  reason = None
  if host.phases['train'].uses_client_state:
    reason = 'lets clients keep what they learn of all groups'
  elif step is not None and step.name == 'adam':
    reason = "has server_optimizer 'adam', which counts the steps of all groups"
  if reason:
    raise errors.ConfigError(
      f'slow_period is {slow_period}, but host {host.name!r} {reason} in every '
      'round; set slow_period to 1 or take host fed_avg with server_optimizer '
      "'sgd', whose clients keep no optimizer's state"
    )


def _check_forgets_factors(host, options, averaging):
  """Raises ConfigError unless all that the host has is the mean of a round.

  For averages whose kernels are factored anew: what belongs to the factors of
  one round means nothing beside those of the next.
  """
  reason = None
  if host.phases['train'].uses_client_state:
    reason = 'lets clients keep what they learn of the factors'
  elif getattr(options, 'server_optimizer', None) != server_optimizer.REPLACE:
    reason = 'goes from the old factors towards the new'
  if reason:
    raise errors.ConfigError(
      f'averaging {averaging!r} factors the kernels anew in every round, but '
      f"host {host.name!r} {reason}; set averaging to 'factors', or take host "
      "fed_avg with server_optimizer 'sgd', learning_rate 1 and no momentum, "
      "whose clients keep no optimizer's state"
    )


def _wrap(phase, model, config, is_full):
  """Returns the host's phase, with its upload by groups."""
  persists = config.schedule.persists
  phase = phase._replace(
    name='train' if is_full else 'fast',
    client_work=_build_work(phase, model, config),
    client_input=tf.TensorSpec([], tf.int32)
    if persists
    else phase.client_input,
    uses_client_state=_uses_state(phase, config),
  )
  if config.averaging == 'kernels':
    return grouped_aggregation.by_kernel(phase)
  sent = filter_groups.GROUPS if is_full else config.schedule.fast_groups
  groups = filter_groups.names_by_group(model)
  return grouped_aggregation.by_group(
    phase, groups, sent, factors_anew=config.factors_anew
  )


def _uses_state(phase, config):
  own = config.local_atoms
  trains_own = own.is_on and own.in_every_round
  return phase.uses_client_state or trains_own or config.schedule.persists


def _build_work(phase, model, config):
  """Returns the host's client work, with training of the client's own weights.

  Its client input is the version of the server's slow weights, where they
  persist at clients (of a host without an input), else the host's.
  """
  own = config.local_atoms
  if not _uses_state(phase, config):
    return phase.client_work

  def work(message, client_input, client_state, data, seed):
    received = global_model.received_weights(message)
    version = client_input
    if config.schedule.persists:
      client_input = ()
      # Hosts with fast rounds send the model alone, see `_check`.
      message = client_state.slow.start(received, version)
    host_state = client_state.host if phase.uses_client_state else ()
    output = phase.client_work(message, client_input, host_state, data, seed)
    metrics = dict(output.metrics)
    if phase.uses_client_state:
      client_state = client_state._replace(host=output.client_state)
    if config.schedule.persists:
      trained = composer.as_fields(output.result)['local_weights']
      names = client_state.slow.weights
      kept = slow_weights.Kept(filter_groups.take(trained, names), version)
      client_state = client_state._replace(slow=kept)
    if own.is_on and own.in_every_round:
      # Another seed, so that the host's work is what it is alone.
      trained, own_metrics = local_atoms_lib.train(
        model, received, client_state.own, data, seed + 1, own
      )
      metrics.update(own_metrics)
      client_state = client_state._replace(own=trained)
    return algorithm.ClientOutput(output.result, client_state, metrics)

  return work


def _build_refit(model, config):
  """Returns the phase in which all clients train their own weights."""
  own = config.local_atoms

  def refit(message, client_input, client_state, data, seed):
    del client_input
    trained, metrics = local_atoms_lib.train(
      model, message, client_state.own, data, seed, own, own.num_refit_epochs
    )
    client_state = client_state._replace(own=trained)
    return algorithm.ClientOutput(OrderedDict(), client_state, metrics)

  return global_model.local_phase('refit', refit)


def _build_plan(host, model, config):
  schedule, own = config.schedule, config.local_atoms
  num_slow = slow_weights.num_slow(model, schedule)
  num_parameters = trees.num_entries(model.weights_spec())
  own_solves = int(own.is_on and own.in_every_round)
  more_floats = 0
  if config.averaging == 'kernels':
    more_floats = grouped_aggregation.kernels_beyond_factors(model)

  def plan_round(server_state, population, round_num, seed):
    (call,) = host.plan_round(server_state, population, round_num, seed)
    count = len(call.client_indices)
    inputs = call.client_inputs
    if schedule.persists:
      inputs = np.full(count, schedule.version(round_num), np.int32)
    cost = slow_weights.cost_of(call, round_num, num_slow, schedule)
    yield algorithm.PhaseCall(
      'train' if schedule.is_full(round_num) else 'fast',
      call.client_indices,
      inputs,
      cost._replace(
        uplink_floats=cost.uplink_floats + count * more_floats,
        local_solves=cost.local_solves + count * own_solves,
      ),
    )
    if own.refits_after(round_num):
      yield global_model.local_call(
        'refit', population.clients_with_examples, num_parameters
      )

  return plan_round
