"""Client work of pFedMe and pFedKM: gradient descent on a Moreau envelope.

Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes"
(NeurIPS 2020), arXiv:2006.08848, Algorithm 1. With

  F(w) = min_theta f(theta) + proximal_weight / 2 * |theta - w|^2

the gradient is proximal_weight * (w - theta*(w)). Each of `num_local_steps`
local steps draws a new batch, solves the problem on it approximately, and
updates

  w <- w - client_learning_rate * proximal_weight * (w - theta).

The solver is gradient descent from the theta of the previous step.

If f has curvature a in all directions, the uploaded model is q^R times the
received one plus 1 - q^R times the client's own minimiser, with q = 1 -
client_learning_rate a proximal_weight / (a + proximal_weight): q^R is the
weight of the received model in the upload. Every client measures it
(`upload_memory`).
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tff_algos.core import algorithm, checks, errors
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import statistics, trees, unit_dropout
from tff_algos.stages.client import batches, gradients, objectives

STARTS = ('received', 'own')
KEPT = ('personalized', 'local', 'both')


@dataclasses.dataclass(frozen=True)
class MoreauEnvelopeConfig:
  """Options of the client work.

  Attributes:
    num_local_steps: R, >= 1.
    batch_size: Examples of a batch, >= 1; one batch for a whole local step.
    client_learning_rate: eta, of the local steps, >= 0; 0 keeps w as received.
    proximal_weight: lambda, > 0; large ones keep theta close to w.
    num_proximal_steps: Gradient steps of a solve, >= 1; the maximum, if there
      is a tolerance.
    proximal_tolerance: A solve ends when the squared norm of its gradient is
      at most this, >= 0; 0 always takes all steps.
    personal_learning_rate: Learning rate of the solver, > 0. Its product with
      proximal_weight + weight_decay must be below 2.
    weight_decay: Weight decay of theta in the solver, >= 0: adds weight_decay /
      2 * |theta|^2 to f.
    start: Starting point of theta in a round: the `'received'` model, or the
      client's `'own'` theta of its last round.
    kept: The model served to the client until its next round: theta, the
      `'personalized'` model, or w, the uploaded `'local'` one. With `'both'`
      theta is served, and w is kept for evaluation, which doubles the memory of
      the client states.
  """

  num_local_steps: int = 10
  batch_size: int = 20
  client_learning_rate: float = 0.005
  proximal_weight: float = 15.0
  num_proximal_steps: int = 5
  proximal_tolerance: float = 0.0
  personal_learning_rate: float = 0.01
  weight_decay: float = 0.0
  start: str = 'received'
  kept: str = 'personalized'

  def __post_init__(self):
    for name in ('num_local_steps', 'batch_size', 'num_proximal_steps'):
      checks.check_int(name, getattr(self, name), minimum=1)
    for name in ('proximal_weight', 'personal_learning_rate'):
      checks.check_positive(name, getattr(self, name))
    checks.check_at_least('client_learning_rate', self.client_learning_rate, 0)
    checks.check_at_least('proximal_tolerance', self.proximal_tolerance, 0)
    checks.check_at_least('weight_decay', self.weight_decay, 0)
    checks.check_one_of('start', self.start, STARTS)
    checks.check_one_of('kept', self.kept, KEPT)
    pull = self.proximal_weight + self.weight_decay
    if self.personal_learning_rate * pull >= 2:
      raise errors.ConfigError(
        'personal_learning_rate * (proximal_weight + weight_decay) must be '
        f'below 2, got {self.personal_learning_rate:g} * {pull:g}: the '
        'solver would diverge. Lower '
        f'personal_learning_rate below {2 / pull:.3g}'
      )
    if self.start == 'own' and self.kept == 'local':
      raise errors.ConfigError(
        "start 'own' needs the theta of the last round, but kept 'local' "
        "discards it; set kept to 'personalized' or 'both', or start to "
        "'received'"
      )


class ClientState(NamedTuple):
  """Client state: models kept between rounds.

  Attributes:
    personalized_weights: theta; w, if `kept` is `'local'`.
    num_updates: Rounds in which the client took part, int32 `[]`; before the
      first, the weights are ignored.
    local_weights: w, if both are kept, else `()`.
  """

  personalized_weights: model_lib.Weights
  num_updates: tf.Tensor
  local_weights: model_lib.Weights | tuple[()] = ()

  def serve(self, received: model_lib.Weights) -> model_lib.Weights:
    """Returns the client's weights; before its first round the received."""
    return trees.select(
      self.num_updates > 0, self.personalized_weights, received
    )

  def serve_local(self, received: model_lib.Weights) -> model_lib.Weights:
    """Returns the local weights likewise; needs `kept='both'`."""
    return trees.select(self.num_updates > 0, self.local_weights, received)


class LocalModels(NamedTuple):
  """Both models at the end of the client work.

  Attributes:
    local_weights: w, which is uploaded.
    personalized_weights: theta.
  """

  local_weights: model_lib.Weights
  personalized_weights: model_lib.Weights


def initial_state(
  model: model_lib.Model, config: MoreauEnvelopeConfig
) -> ClientState:
  """Returns the state of a client that never took part."""
  zeros = trees.zeros(model.weights_spec())
  return ClientState(
    zeros, tf.constant(0), zeros if config.kept == 'both' else ()
  )


def build_local_weights(
  config: MoreauEnvelopeConfig,
  received_by: Callable[[Structure, tf.Tensor], model_lib.Weights],
) -> algorithm.WeightsOfClient | None:
  """Returns `FederatedAlgorithm.local_weights`; None unless both are kept.

  Args:
    config: Options of the client work.
    received_by: (ServerState, client index) -> the model that the server sends
      to the client.
  """
  if config.kept != 'both':
    return None
  return lambda server_state, client_state, client_index: (
    client_state.serve_local(received_by(server_state, client_index))
  )


def work(
  objective: objectives.Objective,
  received: model_lib.Weights,
  client_state: ClientState,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: MoreauEnvelopeConfig,
) -> tuple[LocalModels, ClientState, OrderedDict[str, statistics.MeanStat]]:
  """Client work of one round.

  Args:
    objective: f on a batch, without the proximal term.
    received: The model received from the server.
    client_state: State of the client.
    data: Its examples.
    seed: int32 `[2]`; determines the order of the examples, and the dropped
      units: the same ones during a solve.
    config: Options of the client work.

  Returns:
    Both models, the new client state, and the metrics of `descend`.
  """
  start = received
  if config.start == 'own':
    start = client_state.serve(received)
  models, metrics = descend(objective, received, start, data, seed, config)
  local, personalized = models
  state = ClientState(
    local if config.kept == 'local' else personalized,
    client_state.num_updates + 1,
    local if config.kept == 'both' else (),
  )
  return models, state, metrics


def descend(
  objective: objectives.Objective,
  weights: Structure,
  start: Structure,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: MoreauEnvelopeConfig,
) -> tuple[LocalModels, OrderedDict[str, statistics.MeanStat]]:
  """Runs all local steps.

  Args:
    objective: f on a batch.
    weights: Starting point of w.
    start: Starting point of theta.
    data: The client's examples. Without any, w and theta are unchanged.
    seed: int32 `[2]`.
    config: Numbers and learning rates of the steps.

  Returns:
    Both models; `loss`, the mean over examples, each before a step of theta;
    and `upload_memory`, from 0 to 1, from the mean curvature of f along the
    displacement of w on the last batch. It is exact if f is quadratic with one
    curvature and its problems are solved exactly.
  """
  drawn = batches.draw_steps(
    seed, data.mask, config.num_local_steps, config.batch_size
  )
  gradient_on = _build_gradient(objective)
  solve = _build_solver(gradient_on, config)

  # The loop carries theta - w: a step of w then only shrinks it, and no digits
  # are lost where theta and w are close.
  def step(i, weights, offset, loss):
    batch, draws = drawn.read(data, i, seed)
    offset, batch_loss = solve(weights, offset, batch, draws)
    share = config.client_learning_rate * config.proximal_weight
    share *= tf.reduce_max(batch.mask)
    weights = trees.add(weights, trees.scale(offset, share))
    offset = trees.scale(offset, 1 - share)
    return i + 1, weights, offset, trees.add(loss, batch_loss)

  _, end, offset, loss = tf.while_loop(
    lambda i, *_: i < config.num_local_steps,
    step,
    (
      tf.constant(0),
      weights,
      trees.subtract(start, weights),
      statistics.empty_mean(),
    ),
    parallel_iterations=1,
  )
  last = drawn.read(data, config.num_local_steps - 1, seed)
  return LocalModels(end, trees.add(end, offset)), OrderedDict(
    loss=loss,
    upload_memory=_upload_memory(gradient_on, weights, end, *last, config),
  )


def _build_gradient(objective):
  """Returns (batch, draws, point, rate) -> (rate * gradient of f, losses)."""

  @gradients.as_one
  def gradient_on(batch, draws, point, rate):
    with unit_dropout.in_step(0.0, draws):
      return gradients.gradient(objective, point, batch, rate)

  return gradient_on


def _build_solver(gradient_on, config):
  """Returns (w, theta - w, batch, draws) -> (theta - w, loss), one solve."""

  def solve(weights, offset, batch, draws):
    # A learning rate of 0 skips the solve of a batch without examples.
    rate = config.personal_learning_rate * tf.reduce_max(batch.mask)
    kept = 1 - rate * config.proximal_weight

    def step(i, offset, loss):
      point = trees.add(weights, offset)
      gradient, losses = gradient_on(batch, draws, point, rate)
      if config.weight_decay:
        decay = trees.scale(point, rate * config.weight_decay)
        gradient = trees.add(gradient, decay)
      stepped = trees.subtract(trees.scale(offset, kept), gradient)
      if config.proximal_tolerance:
        change = trees.squared_norm(trees.subtract(stepped, offset))
        is_solved = change <= rate**2 * config.proximal_tolerance
        stepped = trees.select(is_solved, offset, stepped)
      batch_loss = statistics.weighted_mean(losses, batch.mask)
      return i + 1, stepped, trees.add(loss, batch_loss)

    _, offset, loss = tf.while_loop(
      lambda i, *_: i < config.num_proximal_steps,
      step,
      (tf.constant(0), offset, statistics.empty_mean()),
      parallel_iterations=1,
    )
    return offset, loss

  return solve


def _upload_memory(gradient_on, start, end, batch, draws, config):
  """Returns q^R; q is from 0 to 1 unless the steps overshoot, then below 0."""
  has_examples = tf.reduce_max(batch.mask)
  first, last = (
    gradient_on(batch, draws, point, has_examples)[0] for point in (start, end)
  )
  moved = trees.subtract(end, start)
  risen = trees.inner_product(trees.subtract(last, first), moved)
  curvature = tf.math.divide_no_nan(risen, trees.squared_norm(moved))
  curvature = tf.maximum(curvature, 0.0) + config.weight_decay
  pull = config.proximal_weight
  kept = 1 - config.client_learning_rate * curvature * pull / (curvature + pull)
  memory = tf.minimum(tf.abs(kept) ** config.num_local_steps, 1.0)
  return statistics.MeanStat(memory * has_examples, has_examples)
