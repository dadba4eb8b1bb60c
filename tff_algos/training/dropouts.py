"""Clients that fail while a phase runs: a network that breaks, a phone off.

No paper of ours has them; every deployment does. Who fails is a function of
(seed, phase, round, client), so an interrupted run loses the same clients.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import seeds


def drop(
  call: algorithm_lib.PhaseCall,
  population: algorithm_lib.Population,
  round_num: int,
  seed: int,
  dropout_rate: float,
) -> algorithm_lib.PhaseCall:
  """Returns a phase call without the clients that fail in it.

  A client that fails was sent its message and sends nothing: the downlink and
  the local solves stay in the cost, and of the uplink the share of those who
  are left, which is exact where all clients send equally much.

  Args:
    call: What the plan asks for.
    population: All clients.
    round_num: Of the call.
    seed: The run's seed.
    dropout_rate: The chance of each client to fail, in [0, 1).

  Returns:
    A call of those who are left; perhaps of nobody.
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
  return dataclasses.replace(
    call,
    client_indices=call.client_indices[stays],
    client_inputs=tf.nest.map_structure(
      lambda leaf: leaf[stays], call.client_inputs
    ),
    cost=call.cost._replace(uplink_floats=uplink),
  )
