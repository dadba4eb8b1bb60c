"""Rules by which an algorithm's states move to another client population.

A run that continues an earlier one (`training.continuation`) has a population
of its own: some clients stay, some come, some leave and some return. The state
of a client moves with it, unchanged, and a newcomer has its initial state,
unless the algorithm declares another. The server state moves by one rule for
each field, which the algorithm declares as its `FederatedAlgorithm.carry`.
"""

import enum
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tff_algos.core.structures import Structure


class Rule(enum.Enum):
  """Treatment of one field of the server state, an array or nested arrays.

  Attributes:
    KEEP: Unchanged.
    OPTIMIZER: Unchanged, or initial if the optimizer starts anew.
    INITIAL: The initial value of the new population.
    CLIENTS: A row for each client on axis 0, which moves with the client;
      newcomers have the initial row.
    STAYING: As `CLIENTS`, but for a client that returns, which has the initial
      row.
    CLUSTER: As `CLIENTS`, of cluster ids; a newcomer has the cluster whose
      model has the lowest loss on its training examples.
    PAIRS: A value for each pair of clients on axes 0 and 1. It moves with both;
      pairs with a newcomer or a returned client have the initial value.
    CLIENT_SUM: The sum over all clients of a quantity that is zero without a
      client state. It is scaled by the number of clients that bring one over
      that of the parent run's, as if those that leave were like those that
      stay.
  """

  KEEP = enum.auto()
  OPTIMIZER = enum.auto()
  INITIAL = enum.auto()
  CLIENTS = enum.auto()
  STAYING = enum.auto()
  CLUSTER = enum.auto()
  PAIRS = enum.auto()
  CLIENT_SUM = enum.auto()


KEEP, OPTIMIZER, INITIAL, CLIENTS, STAYING, CLUSTER, PAIRS, CLIENT_SUM = Rule


def _as_initialized(old: Structure, initial: Structure) -> Structure:
  del old
  return initial


Rules = Mapping[str, 'Rule | Rules']


class Carry(NamedTuple):
  """An algorithm's declaration of how its states move.

  Attributes:
    rules: Field of the server state -> its rule, or such a mapping for a field
      that is a NamedTuple.
    newcomer_rows: (server state of the parent run, initial server state of the
      new population), NumPy -> the initial server state whose rows newcomers
      and whose `INITIAL` fields the run gets; by default the initial one.
    newcomer_state: server state of the parent run, NumPy -> client state of
      all newcomers; None for their initial ones.
  """

  rules: 'Rules'
  newcomer_rows: Callable[[Structure, Structure], Structure] = _as_initialized
  newcomer_state: Callable[[Structure], Structure] | None = None
