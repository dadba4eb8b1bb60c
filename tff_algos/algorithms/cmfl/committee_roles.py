"""Sampling of committee and training clients, and their client inputs.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022), section 4.3, step 1.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.cmfl import committee
from tff_algos.core import algorithm, errors, seeds
from tff_algos.core.structures import Leaf
from tff_algos.stages.server import client_sampling

_FEWEST_CLIENTS = 2


class Role(NamedTuple):
  """Client input of a round: role and sizes.

  Attributes:
    is_member: Whether the client is a committee member, bool `[]`; else it is a
      training client.
    committee_size: C, int32 `[]`.
    num_selected: m, int32 `[]`.
    server_learning_rate: Server learning rate of this round, float32 `[]`.
  """

  is_member: Leaf
  committee_size: Leaf
  num_selected: Leaf
  server_learning_rate: Leaf


SPEC = Role(
  tf.TensorSpec([], tf.bool),
  tf.TensorSpec([], tf.int32),
  tf.TensorSpec([], tf.int32),
  tf.TensorSpec([], tf.float32),
)


class Cast(NamedTuple):
  """Active clients of a round by role, as positions in the population.

  Attributes:
    members: S_c, int32 `[C]`, ascending.
    training: S_b, int32 `[n]`, ascending, none of them a member.
    active: Both, int32 `[C + n]`, ascending.
    roles: Roles of the active clients, `[C + n]`.
  """

  members: np.ndarray
  training: np.ndarray
  active: np.ndarray
  roles: Role


def assign(
  population: algorithm.Population,
  is_member: np.ndarray,
  drawn_in: int,
  round_num: int,
  seed: int,
  config: committee.CommitteeConfig,
  server_learning_rate: float,
) -> Cast:
  """Assigns the roles of a round.

  Only clients that have examples take part, and count in the sizes of roles. A
  single such client is the committee, without training clients to score.

  Args:
    population: All clients.
    is_member: The elected committee, bool `[num_clients]`; if all are False, a
      committee is sampled.
    drawn_in: The round in which this committee was first sampled; it is the
      same until its members agree on another.
    round_num: The round.
    seed: The run's seed.
    config: The sizes.
    server_learning_rate: Server learning rate of the round.

  Raises:
    ConfigError: If there are fewer than two clients.
  """
  if population.num_clients < _FEWEST_CLIENTS:
    raise errors.ConfigError(
      f'there are {population.num_clients} clients; a committee and its '
      f'training clients are at least {_FEWEST_CLIENTS}'
    )
  num_available = len(population.clients_with_examples)
  sizes = committee.sizes(max(num_available, _FEWEST_CLIENTS), config)
  # A member whose examples are gone, in a continued run, has no vote.
  members = np.intersect1d(
    np.flatnonzero(np.asarray(is_member)), population.clients_with_examples
  )
  if not members.size:
    generator = seeds.numpy_generator(seed, 'committee', drawn_in)
    members = _draw(population, (), sizes.committee, generator)
  generator = seeds.numpy_generator(seed, 'cohort', round_num)
  training = _draw(population, members, sizes.training, generator)
  active = np.sort(np.concatenate([members, training])).astype(np.int32)
  told = np.full(len(active), 1)
  roles = Role(
    np.isin(active, members),
    np.int32(sizes.committee * told),
    np.int32(sizes.aggregated * told),
    np.float32(server_learning_rate * told),
  )
  return Cast(np.sort(members).astype(np.int32), training, active, roles)


def _draw(population, excluded, size, generator):
  """Samples at most `size` distinct clients with examples."""
  available = np.setdiff1d(population.clients_with_examples, excluded)
  return client_sampling.draw_uniform(
    available, min(size, len(available)), generator
  )
