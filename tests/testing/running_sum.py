"""An algorithm whose every number can be worked out by hand.

One phase, `add`. The server broadcasts its total; a client says the sum of its
examples plus that total, weighs its number of examples in the mean, and counts
its turns. The server adds what was said to its total, and remembers the mean
and what each client said.
"""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tests.testing import toys
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import carrying
from tff_algos.data import schema
from tff_algos.numerics import statistics
from tff_algos.rounds import aggregation, plans
from tff_algos.runtimes import cohort as cohort_lib

PHASE = 'add'


class ServerState(NamedTuple):
  total: tf.Tensor  # float32 []
  mean: tf.Tensor  # float32 []
  said: tf.Tensor  # float32 [num_clients]


class ClientState(NamedTuple):
  num_turns: tf.Tensor  # int32 []
  last: tf.Tensor  # float32 [2]: what it said, and its input


def source(*clients: list[float]) -> toys.ToySource:
  """Returns clients whose examples are single numbers, with label 0."""
  return toys.ToySource(
    [
      schema.Examples(
        np.array(x, np.float32).reshape(-1, 1),
        np.zeros(len(x), np.float32),
        np.zeros(len(x), np.int32),
      )
      for x in clients
    ]
  )


def client_work(message, client_input, client_state, data, seed):
  del seed
  said = tf.reduce_sum(data.x[:, 0] * data.mask) + message
  result = {name: said for name in ('value', 'mean', 'said')}
  return algorithm_lib.ClientOutput(
    {**result, 'weight': tf.reduce_sum(data.mask)},
    ClientState(client_state.num_turns + 1, tf.stack([said, client_input])),
    OrderedDict(x=statistics.weighted_mean(data.x[:, 0], data.mask)),
  )


def _update(server_state, aggregates):
  said, mean = aggregates['said'], aggregates['mean']
  new_state = ServerState(
    server_state.total + aggregates['value'],
    mean.value,
    tf.tensor_scatter_nd_update(
      server_state.said, said.client_index[:, tf.newaxis], said.values
    ),
  )
  return new_state, OrderedDict(
    weight=mean.weight, num_said=tf.size(said.client_index)
  )


def _plan_round(server_state, population, round_num, seed):
  del server_state, seed
  indices = np.arange(population.num_clients, dtype=np.int32)
  yield phase_call(indices, np.full(len(indices), round_num))


def phase_call(indices, inputs) -> algorithm_lib.PhaseCall:
  return algorithm_lib.PhaseCall(
    PHASE,
    np.asarray(indices, np.int32),
    np.asarray(inputs, np.float32),
    algorithm_lib.Cost(1, 2, 3),
  )


def algorithm(
  vectorizes: bool = True, **stages
) -> algorithm_lib.FederatedAlgorithm:
  """Returns the algorithm.

  Args:
    vectorizes: What its model says of itself.
    **stages: Replace stages of its phase.
  """
  phase = algorithm_lib.Phase(
    name=PHASE,
    make_message=lambda server_state: server_state.total,
    client_work=client_work,
    aggregation={
      'value': aggregation.Sum(),
      'mean': aggregation.WeightedMean('weight'),
      'said': aggregation.Collect(),
    },
    server_update=_update,
    client_input=tf.TensorSpec([], tf.float32),
  )
  model = dataclasses.replace(toys.linear(1), vectorizes=vectorizes)
  return algorithm_lib.FederatedAlgorithm(
    name='running_sum',
    num_clusters=1,
    init_server_state=lambda seed, num_clients: ServerState(
      tf.constant(0.0), tf.constant(0.0), tf.zeros([num_clients])
    ),
    init_client_state=lambda run_seed, client_seed: ClientState(
      tf.constant(0), tf.zeros([2])
    ),
    phases={PHASE: phase._replace(**stages)},
    plan_round=_plan_round,
    cluster_model=model,
    cluster_weights=lambda server_state: OrderedDict(
      kernel=tf.reshape(server_state.total, [1, 1, 1])
    ),
    personalized_model=model,
    personalized_weights=lambda server_state, client_state, client_index: (
      OrderedDict(kernel=tf.reshape(client_state.last[0], [1, 1]))
    ),
    membership=lambda server_state, client_state, client_index: tf.ones([1]),
    carry=carrying.Carry(
      {
        'total': carrying.KEEP,
        'mean': carrying.KEEP,
        'said': carrying.CLIENTS,
      }
    ),
  )


def run_call(
  runtime: cohort_lib.Runtime,
  algorithm: algorithm_lib.FederatedAlgorithm,
  clients: toys.ToySource,
  call: algorithm_lib.PhaseCall,
  total: float = 0.0,
) -> cohort_lib.PhaseOutput:
  """Runs one call from the initial states, but for the server's total."""
  server_state, states = toys.initial_states(algorithm, clients.population)
  server_state = server_state._replace(total=np.float32(total))
  phase = algorithm.phases[call.phase]
  return toys.run_call(
    runtime, phase, server_state, states, call, (1, 0, clients)
  )


def cohort(
  call: algorithm_lib.PhaseCall, clients: toys.ToySource
) -> cohort_lib.Cohort:
  """Returns the cohort of a call that uses no client states."""
  return cohort_lib.Cohort(call, 1, 0, clients, load_states=None)


def contributing(uploads) -> algorithm_lib.FederatedAlgorithm:
  """Returns the algorithm of clients of which some train without being drawn."""

  def work(message, contribution, *rest):
    return client_work(message, contribution.counts, *rest)

  return algorithm(
    client_work=work,
    client_input=plans.Contribution(tf.TensorSpec([], tf.float32)),
    uploads=uploads,
  )
