"""What members have computed alike becomes what holds, if they agree on it.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022), Algorithm 1: the protocol's last
step. The vote itself is messages between members, no computation of clients;
its outcome comes in as their input.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.core import algorithm
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees
from tff_algos.rounds import aggregation

# Of an outcome: 1 if members agreed on what was proposed, else 0.
_IS_ACCEPTED = 'is_accepted'


class Agreed(NamedTuple):
  """What members vote on.

  Attributes:
    model_weights: The global model.
    is_member: The committee of the next round, bool `[num_clients]`; nobody
      before round 1, when it is drawn.
    is_selected: Who was averaged, bool `[num_clients]`.
  """

  model_weights: model_lib.Weights
  is_member: tf.Tensor
  is_selected: tf.Tensor


def tell_all(outcome: Any, num_members: int) -> OrderedDict[str, np.ndarray]:
  """Returns an outcome as the client input of every member.

  Args:
    outcome: A named tuple of numbers, with `is_accepted` among them.
    num_members: How many clients are told.
  """
  return OrderedDict(
    (name, np.full(num_members, value, np.float32))
    for name, value in outcome._asdict().items()
  )


def build_phase(names: Sequence[str]) -> algorithm.Phase:
  """Returns the phase `adopt` of a server state with `agreed` and `proposed`.

  It also keeps its `num_selections` and `num_in_vain`, the rounds since the
  last agreement.

  Its server metrics are the outcome. Without agreement what held still holds.

  Args:
    names: Fields of an outcome; `is_accepted` is one.
  """

  def report(message, outcome, client_state, data, seed):
    del message, data, seed
    result = OrderedDict(outcome=outcome, weight=tf.constant(1.0))
    return algorithm.ClientOutput(result, client_state, OrderedDict())

  def adopt(server_state, aggregates):
    # All members say the same; nobody says anything where all are lost.
    outcome = aggregates['outcome'].value
    is_accepted = outcome[_IS_ACCEPTED] > 0
    agreed, proposed = server_state.agreed, server_state.proposed
    adopted = trees.select(is_accepted, proposed, agreed)
    return server_state._replace(
      agreed=adopted,
      # Nothing is left to be adopted by a round whose training lost everybody.
      proposed=adopted._replace(is_selected=tf.zeros_like(adopted.is_selected)),
      num_selections=server_state.num_selections
      + tf.cast(proposed.is_selected & is_accepted, tf.int32),
      num_in_vain=tf.where(is_accepted, 0, server_state.num_in_vain + 1),
    ), OrderedDict(outcome)

  return algorithm.Phase(
    name='adopt',
    make_message=lambda server_state: (),
    client_work=report,
    aggregation={'outcome': aggregation.WeightedMean('weight')},
    server_update=adopt,
    client_input=OrderedDict(
      (name, tf.TensorSpec([], tf.float32)) for name in names
    ),
    uses_client_state=False,
  )
