"""Membership exchange: messages between clients and server besides weights.

Per client: its penalty's gradient, its weight in the objective, or, where the
server takes the mirror steps, its membership and its gradient (Di et al.,
arXiv:2310.14337, Algorithms 1 to 3).
"""

import dataclasses
from collections import OrderedDict

import numpy as np
import tensorflow as tf

from tff_algos.algorithms.ppfl import affinity, membership_descent, mixing
from tff_algos.core import algorithm, checks, errors, seeds
from tff_algos.core.structures import Structure
from tff_algos.rounds import aggregation

ALTERNATING, RANDOM_BLOCK, SHARED_FIRST = SCHEDULES = (
  'alternating',
  'random_block',
  'shared_first',
)

# The phases of a round; for `RANDOM_BLOCK`, one of them is drawn.
PHASES = {
  ALTERNATING: ('joint',),
  SHARED_FIRST: ('shared', 'membership'),
  RANDOM_BLOCK: ('shared', 'membership'),
}


def check_schedule(
  schedule: str, membership: membership_descent.MembershipConfig
) -> None:
  """Raises ConfigError for an unknown schedule, or unsupported options."""
  checks.check_one_of('schedule', schedule, SCHEDULES)
  if schedule == RANDOM_BLOCK and membership.num_epochs > 1:
    raise errors.ConfigError(
      "schedule 'random_block' takes one step on memberships a round, but "
      f'membership.num_epochs is {membership.num_epochs}; set it to 1, or '
      'choose another schedule'
    )


@dataclasses.dataclass(frozen=True)
class MembershipExchange:
  """Phases of a round, their cohorts and each client's input, by schedule.

  The phases: `count_labels`; `stationarity`; `shared`, which updates the model
  weights, `membership`, which updates the memberships, and `joint`, which
  updates both.

  Attributes:
    mixture: The model.
    schedule: One of `SCHEDULES`; in `'random_block'` the server holds the
      memberships.
    is_partial: Whether not all clients take part in a round.
    num_joint_rounds: If > 0, after so many rounds model weights are frozen.
    membership: Options of the membership updates.
    laplacian: The penalty.
  """

  mixture: mixing.Mixture
  schedule: str
  is_partial: bool
  num_joint_rounds: int
  membership: membership_descent.MembershipConfig
  laplacian: affinity.LaplacianConfig

  @property
  def at_server(self) -> bool:
    """Returns whether the server updates the memberships."""
    return self.schedule == RANDOM_BLOCK

  @property
  def uploads_membership(self) -> bool:
    """Returns whether clients upload their memberships, for the penalty."""
    return self.laplacian.weight > 0

  def phases(
    self,
    round_num: int,
    seed: int,
    shared_prob: float,
    stationarity_interval: int,
  ) -> list[str]:
    """Returns the names of a round's phases after `count_labels`, in order.

    Args:
      round_num: From 1.
      seed: The run's seed.
      shared_prob: Probability of the block of model weights in `RANDOM_BLOCK`.
      stationarity_interval: Rounds between measurements; 0 for none.
    """
    names = []
    if stationarity_interval and (round_num - 1) % stationarity_interval == 0:
      names.append('stationarity')
    blocks = PHASES[self.schedule]
    if 0 < self.num_joint_rounds < round_num:
      blocks = ('membership',)
    elif self.schedule == RANDOM_BLOCK:
      draw = seeds.numpy_generator(seed, 'block', round_num).random()
      blocks = blocks[:1] if draw < shared_prob else blocks[1:]
    return [*names, *blocks]

  def client_input(self, phase: str) -> Structure:
    """Returns the type of a phase's client input.

    Fields, where they are needed: `membership` and `penalty_gradient`,
    `[num_canonical]`; `client_weight`, its p_i, `[]`.
    """
    if phase == 'count_labels':
      return ()
    measures = phase == 'stationarity'
    moves = phase in ('joint', 'membership')
    needed = {
      'membership': self.at_server,
      'penalty_gradient': self.laplacian.weight > 0
      and (measures or (moves and not self.at_server)),
      'client_weight': measures or (moves and self.membership.is_weighed),
    }
    shapes = [[self.mixture.num_canonical]] * 2 + [[]]
    return OrderedDict(
      (field, tf.TensorSpec(shape, tf.float32))
      for (field, is_needed), shape in zip(needed.items(), shapes, strict=True)
      if is_needed
    )

  def membership_of(
    self, client_input: Structure, client_state: Structure
  ) -> tf.Tensor:
    """Returns a client's membership, wherever it is held, `[num_canonical]`."""
    if self.at_server:
      return client_input['membership']
    return client_state.membership

  def cohort(
    self, phase: str, drawn: np.ndarray, population: algorithm.Population
  ) -> np.ndarray:
    """Returns the cohort of a phase, int32 `[cohort]`, ascending.

    With a penalty that needs no counts, and if all clients take part in a
    round, those without examples move their memberships and are measured, too.

    Args:
      phase: Name of the phase.
      drawn: Sampled clients of the round.
      population: All clients.
    """
    if phase == 'shared' or (self.is_partial and phase != 'stationarity'):
      return drawn
    pulls_all = self.laplacian.weight > 0 and not self.laplacian.needs_counts
    if pulls_all and not self.is_partial:
      return population.all_clients
    return population.clients_with_examples

  def call(
    self,
    phase: str,
    server_state: Structure,
    client_indices: np.ndarray,
    client_weights: np.ndarray,
    round_num: int,
  ) -> algorithm.PhaseCall:
    """Returns the call of a phase, with each client's input.

    Args:
      phase: Name of the phase.
      server_state: With the fields `membership` and `affinity_features`, of
        NumPy arrays.
      client_indices: The cohort, int32 `[cohort]`.
      client_weights: p_i of all clients, float32 `[num_clients]`.
      round_num: From 1.
    """

    def pulls():
      laplacian = self.laplacian
      if phase == 'stationarity':  # The objective's gradient, in any schedule.
        laplacian = dataclasses.replace(laplacian, form=affinity.LAPLACIAN)
      return affinity.penalty_gradients(
        laplacian, server_state.affinity_features, server_state.membership
      ).numpy()

    values = {
      'membership': lambda: np.asarray(server_state.membership)[client_indices],
      'penalty_gradient': lambda: pulls()[client_indices],
      'client_weight': lambda: client_weights[client_indices],
    }
    spec = self.client_input(phase)
    inputs = OrderedDict((field, values[field]()) for field in spec)
    cost = np.array(self._cost(phase, round_num)) * len(client_indices)
    return algorithm.PhaseCall(
      phase, client_indices, inputs or spec, algorithm.Cost(*map(int, cost))
    )

  def _cost(self, phase, round_num):
    """Returns floats down and up, and local solves, of one client.

    p_i is sent once, and not counted. With all clients in the cohort, a client
    that has received the model weights since their last change holds them;
    weights sent by a measurement do not count for the round.
    """
    weights = self.mixture.num_parameters
    memberships = self.mixture.num_canonical * (
      self.at_server or self.uploads_membership
    )
    penalty = self.mixture.num_canonical * self.uploads_membership
    down, up, solves = {
      'count_labels': (0, self.mixture.model.num_outputs, 0),
      'stationarity': (weights + penalty, weights + 2, 0),
      'joint': (weights + memberships, weights + memberships, 1),
      'shared': (weights, weights, 1),
      'membership': (weights + memberships, memberships, 0),
    }[phase]
    return down - weights * self._holds_weights(phase, round_num), up, solves

  def _holds_weights(self, phase, round_num):
    """Returns whether a client has the model weights that a phase needs."""
    if self.is_partial or phase in ('count_labels', 'joint'):
      return False
    last_joint = self.num_joint_rounds or float('inf')
    # The release sends the new weights before memberships are updated.
    is_told_early = self.schedule == SHARED_FIRST
    if phase == 'shared' or (phase == 'stationarity' and is_told_early):
      return is_told_early and round_num > 1
    return {
      ALTERNATING: round_num > last_joint + 1,
      RANDOM_BLOCK: True,
      SHARED_FIRST: round_num > last_joint,
    }[self.schedule]


def build_server_step(
  exchange: MembershipExchange, loss_scale: float
) -> algorithm.Phase:
  """Returns the phase `membership` with mirror steps at the server.

  Algorithm 1, block C: clients upload gradients of their memberships (Algorithm
  2), and the server takes the mirror steps of the whole cohort.

  The server state is a NamedTuple with the fields `model_weights`, `membership`
  and `affinity_features`. A client that takes no part keeps its membership.

  Args:
    exchange: The model, the penalty, and the options of membership updates.
    loss_scale: Factor on the loss, > 0.
  """
  config, laplacian = exchange.membership, exchange.laplacian

  def work(model_weights, client_input, client_state, data, seed):
    slope, loss = membership_descent.gradient(
      exchange.mixture,
      model_weights,
      exchange.membership_of(client_input, client_state),
      data,
      seed,
      config,
      loss_scale,
    )
    weight = client_input.get('client_weight', 1.0)
    return algorithm.ClientOutput(
      OrderedDict(membership_gradient=weight * slope),
      client_state,
      OrderedDict(membership_loss=loss),
    )

  def step(server_state, aggregates):
    slopes, table = aggregates['membership_gradient'], server_state.membership
    gradient = slopes.values
    if laplacian.weight:
      pulls = affinity.penalty_gradients(
        laplacian, server_state.affinity_features, table
      )
      gradient += tf.gather(pulls, slopes.client_index)
    stepped = membership_descent.entropic_step(
      tf.gather(table, slopes.client_index),
      gradient,
      config.learning_rate,
      config.floor,
    )
    table = aggregation.write_rows(table, slopes._replace(values=stepped))
    return server_state._replace(membership=table), OrderedDict()

  return algorithm.Phase(
    name='membership',
    make_message=lambda server_state: server_state.model_weights,
    client_work=work,
    aggregation={'membership_gradient': aggregation.Collect()},
    server_update=step,
    client_input=exchange.client_input('membership'),
    uses_client_state=False,
  )
