"""Compatibility checks of filter decomposition with hosts and their options.

A host's state between rounds refers to the weights of all groups and to their
factors. Options that leave groups out of a round, or change factors between
rounds, invalidate such a state.
"""

from typing import Any

from tff_algos.core import algorithm, errors
from tff_algos.rounds import aggregation
from tff_algos.stages.server import server_optimizer


def check_takes_mean(host: algorithm.FederatedAlgorithm) -> None:
  """Raises ConfigError unless the host takes the mean of `local_weights`."""
  aggregator = host.phases['train'].aggregation['local_weights']
  if not isinstance(aggregator, aggregation.WeightedMean):
    raise errors.ConfigError(
      f'host {host.name!r} takes no mean of its local_weights, which filter '
      "decomposition parts by groups; give it the aggregation rule 'mean', "
      'without mixes_nearest_neighbors'
    )


def check_has_fast_rounds(
  host: algorithm.FederatedAlgorithm,
  options: Any,
  slow_period: int,
) -> None:
  """Raises ConfigError if some weights of the host cannot stay behind.

  Args:
    host: Its training uploads `local_weights`.
    options: Of the host.
    slow_period: As of `slow_weights.ScheduleConfig`, above 1.
  """
  phase = host.phases['train']
  step = getattr(options, 'server_optimizer', None)
  reason = None
  if phase.uses_client_state:
    reason = 'lets clients keep what they learn of all groups'
  elif step is not None and step.name == 'adam':
    reason = "has server_optimizer 'adam', which counts the steps of all groups"
  if reason:
    raise errors.ConfigError(
      f'slow_period is {slow_period}, but host {host.name!r} {reason} in every '
      'round; set slow_period to 1 or take host fed_avg with server_optimizer '
      "'sgd', whose clients keep no optimizer's state"
    )


def check_forgets_factors(
  host: algorithm.FederatedAlgorithm, options: Any, averaging: str
) -> None:
  """Raises ConfigError unless all that the host has is the mean of a round.

  For averages whose kernels are factored anew: what belongs to the factors of
  one round means nothing beside those of the next.

  Args:
    host: Its training uploads `local_weights`.
    options: Of the host.
    averaging: The average, for the message.
  """
  reason = None
  step = getattr(options, 'server_optimizer', None)
  if host.phases['train'].uses_client_state:
    reason = 'lets clients keep what they learn of the factors'
  elif step != server_optimizer.REPLACE:
    reason = 'goes from the old factors towards the new'
  if reason:
    raise errors.ConfigError(
      f'averaging {averaging!r} factors the kernels anew in every round, but '
      f"host {host.name!r} {reason}; set averaging to 'factors', or take host "
      "fed_avg with server_optimizer 'sgd', learning_rate 1 and no momentum, "
      "whose clients keep no optimizer's state"
    )
