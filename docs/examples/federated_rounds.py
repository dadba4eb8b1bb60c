"""FedSoft round by round under TFF's own context; client states are held here.

`docs/tff.md` explains it. Any algorithm runs so.
"""

import numpy as np
import tensorflow as tf

import tff_algos
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import seeds
from tff_algos.rounds import composer, plans
from tff_algos.training import simulation


def run(algorithm, source, num_rounds, seed=0):
  """Returns server state and client states after some rounds.

  Args:
    algorithm: A `tff_algos.FederatedAlgorithm`.
    source: Examples of the clients, a `tff_algos.ArraySource`.
    num_rounds: Number of rounds.
    seed: Seed of initial states, sampling and clients' draws.
  """
  population = source.population
  phases = tff_algos.federated(algorithm, population.num_clients)
  server_state, client_states = simulation.initial_states(
    algorithm, population, seed
  )

  def arguments(call, round_num, position):
    index = int(call.client_indices[position])
    x, y, _ = source.examples(index)
    mask = np.ones(len(y), np.float32)
    if not len(y):  # Client work needs a row; this one has mask 0.
      x, y, mask = (np.zeros((1, *c.shape[1:]), c.dtype) for c in (x, y, mask))
    keeps_state = algorithm.phases[call.phase].uses_client_state
    return composer.Clients(
      client_index=np.int32(index),
      client_input=tf.nest.map_structure(
        lambda leaf: leaf[position], call.client_inputs
      ),
      client_state=client_states[index] if keeps_state else (),
      data=algorithm_lib.ClientData(x, y, mask),
      seed=seeds.derive_seed(
        seed, call.purpose, round_num, population.client_ids[index]
      ),
    )

  for round_num in range(1, num_rounds + 1):
    plan = algorithm.plan_round(server_state, population, round_num, seed)
    calls = plans.Calls(plan, server_state)
    for call in calls:
      output = phases[call.phase].whole(
        calls.server_state,
        [
          arguments(call, round_num, i) for i in range(len(call.client_indices))
        ],
      )
      calls.server_state = server_state = output['server_state']
      if algorithm.phases[call.phase].uses_client_state:
        for one in output['clients']:
          client_states[int(one['client_index'])] = one['client_state']
  return server_state, client_states
