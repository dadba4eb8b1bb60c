"""A phase with an aggregate of every kind, for tests of how stages are joined."""

from collections import OrderedDict
from typing import NamedTuple

import tensorflow as tf

from tests.testing import toys
from tff_algos.core import algorithm
from tff_algos.numerics import statistics
from tff_algos.rounds import aggregation, phase_types


class State(NamedTuple):
  total: tf.Tensor
  num_calls: tf.Tensor


STATE = State(tf.TensorSpec([2]), tf.TensorSpec([], tf.int32))
CLIENT_STATE = tf.TensorSpec([], tf.float32)
MODEL = toys.linear(2)
DATA = phase_types.data_spec(MODEL)


def work(message, client_input, client_state, data, seed):
  del seed
  moved = message['total'] + tf.reduce_sum(data.x, axis=0)
  return algorithm.ClientOutput(
    OrderedDict(
      moved=moved, weight=client_input, twice=2 * client_input, tag=moved
    ),
    client_state + client_input,
    OrderedDict(size=statistics.weighted_mean(data.y, data.mask)),
  )


def update(state, aggregates):
  return (
    State(aggregates['moved'].value, state.num_calls + 1),
    OrderedDict(twice=aggregates['twice']),
  )


PHASE = algorithm.Phase(
  name='toy',
  make_message=lambda state: OrderedDict(total=state.total),
  client_work=work,
  aggregation={
    'moved': aggregation.WeightedMean('weight'),
    'twice': aggregation.Sum(),
    'tag': aggregation.Collect(),
  },
  server_update=update,
  client_input=tf.TensorSpec([], tf.float32),
)


def reply(**changes):
  """Client work whose output is changed."""

  def changed(*arguments):
    output = work(*arguments)
    return output._replace(
      **{name: change(output) for name, change in changes.items()}
    )

  return changed
