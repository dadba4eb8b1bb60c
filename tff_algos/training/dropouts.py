"""Clients of a planned phase call that take no part: dropout, availability.

None of the implemented papers models dropout, the failure of sampled clients
during a phase; every deployment has it. The clients that drop out are a
function of (seed, phase, round, client), so a resumed run drops the same
clients.
"""

import dataclasses

import numpy as np

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import seeds
from tff_algos.core.structures import Array


def drop(
  call: algorithm_lib.PhaseCall,
  population: algorithm_lib.Population,
  round_num: int,
  seed: int,
  dropout_rate: float,
) -> algorithm_lib.PhaseCall:
  """Returns a phase call without the clients that drop out.

  A client that drops out has received its message and uploads nothing: the cost
  keeps the downlink and the local solves, and the remaining clients' share of
  the uplink, which is exact if all clients upload the same amount.

  Args:
    call: The planned phase call.
    population: All clients.
    round_num: Round of the call.
    seed: The run's seed.
    dropout_rate: Dropout probability of each client, in [0, 1).

  Returns:
    A call of the remaining clients; there may be none.
  """
  cohort_size = len(call.client_indices)
  if not dropout_rate or not cohort_size:
    return call
  words = seeds.derive_seeds(
    seed,
    f'dropout/{call.purpose}',
    round_num,
    (population.client_ids[index] for index in call.client_indices),
  )
  stays = words[:, 0].astype(np.uint32) / 2**32 >= dropout_rate
  uplink = call.cost.uplink_floats * int(stays.sum()) // cohort_size
  cost = call.cost._replace(uplink_floats=uplink)
  return dataclasses.replace(call.of(stays), cost=cost)


def restrict(
  call: algorithm_lib.PhaseCall, is_available: Array
) -> algorithm_lib.PhaseCall:
  """Returns a phase call of the available clients alone.

  Nothing is sent to the others: the cost is the available clients' share, which
  is exact if all clients cost the same.

  Args:
    call: The planned phase call.
    is_available: bool `[num_clients]`.
  """
  stays = is_available[call.client_indices]
  if stays.all():
    return call
  shares = (n * int(stays.sum()) // len(stays) for n in call.cost)
  return dataclasses.replace(call.of(stays), cost=algorithm_lib.Cost(*shares))
