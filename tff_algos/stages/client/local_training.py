"""Local training of a client: minibatch SGD on an objective passed in."""

import dataclasses
import operator

import tensorflow as tf

from tff_algos.core import algorithm, checks, errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import (
  optimizers,
  statistics,
  trees,
  unit_dropout,
)
from tff_algos.stages.client import (
  augmentation,
  exact_solution,
  gradients,
  objectives,
)
from tff_algos.stages.client import batches as batches_lib

SOLVERS = ('descent', 'exact')

# Option of steps -> why the solver `'exact'` refuses it.
_REFUSED_BY_EXACT = {
  'num_local_steps': 'takes no steps',
  'weight_decay': 'minimises the objective without it',
  'augmentation': 'takes the examples as they are',
  'unit_dropout_rate': 'takes the whole network',
  'keeps_optimizer_state': 'has no optimizer',
  'optimizer.momentum': 'takes no steps',
  'optimizer.clip_norm': 'takes no steps',
}


@dataclasses.dataclass(frozen=True)
class LocalTrainingConfig:
  """Options of local training.

  Attributes:
    num_local_epochs: Passes over the client's examples, >= 1, each in a new
      order.
    batch_size: Examples a step, >= 1; a short last batch keeps its weight.
    optimizer: The client optimizer.
    augmentation: `'none'`, or `'crop_and_flip'`, which shifts training images
      by up to 4 pixels and flips half of them, at random in every epoch.
    solver: `'descent'`, the steps above; or `'exact'`, which replaces them and
      minimises the objective on all examples at once: for squared errors of
      linear models with at most 512 parameters.
    weight_decay: Adds weight_decay / 2 * |weights|^2 to the objective of the
      steps, >= 0; its gradient passes through the optimizer (the decay is not
      decoupled).
    num_local_steps: Number of steps of one batch each, in place of
      `num_local_epochs`, the same for every client that has examples; the steps
      continue into further epochs where needed. 0 for epochs. Costs a shuffled
      order a step, so it suits small numbers.
    unit_dropout_rate: Share of hidden units dropped in a step, in [0, 1), in
      networks that have a layer for it (`numerics.unit_dropout`).
    keeps_optimizer_state: Whether a client's optimizer goes on with the state
      of the client's last round, such as its momentum; else it begins anew in
      each. Of the algorithms that say so.
  """

  num_local_epochs: int = 1
  batch_size: int = 10
  optimizer: optimizers.OptimizerConfig = optimizers.OptimizerConfig()
  augmentation: str = 'none'
  solver: str = 'descent'
  weight_decay: float = 0.0
  num_local_steps: int = 0
  unit_dropout_rate: float = 0.0
  keeps_optimizer_state: bool = False

  def __post_init__(self):
    checks.check_int('num_local_epochs', self.num_local_epochs, minimum=1)
    checks.check_int('batch_size', self.batch_size, minimum=1)
    checks.check_one_of(
      'augmentation', self.augmentation, augmentation.AUGMENTATIONS
    )
    checks.check_one_of('solver', self.solver, SOLVERS)
    checks.check_at_least('weight_decay', self.weight_decay, 0)
    checks.check_int('num_local_steps', self.num_local_steps, minimum=0)
    checks.check_below_one('unit_dropout_rate', self.unit_dropout_rate)
    for name, why in _REFUSED_BY_EXACT.items():
      value_of = operator.attrgetter(name)
      value, without = value_of(self), value_of(type(self))
      if self.solver == 'exact' and value != without:
        raise errors.ConfigError(
          f"{name} is {value!r}, but solver 'exact' {why}; set {name} to "
          f"{without!r}, or solver to 'descent'"
        )


def check_plain_sgd(config: LocalTrainingConfig) -> None:
  """Raises ConfigError unless clients take steps of SGD without clipping.

  Required where a client's mean gradient is computed from its update, see
  `distance_per_gradient`.
  """
  clip_norm = config.optimizer.clip_norm
  if clip_norm:
    raise errors.ConfigError(
      f'local_training.optimizer.clip_norm must be 0, got {clip_norm:g}: a '
      "client's update must be its mean gradient times a known "
      'number'
    )
  if (config.optimizer.name, config.solver) != ('sgd', 'descent'):
    raise errors.ConfigError(
      "local_training must have optimizer 'sgd' and solver 'descent', got "
      f"{config.optimizer.name!r} and {config.solver!r}: a client's update "
      'must be its mean gradient times a known number'
    )


def distance_per_gradient(
  mask: tf.Tensor, config: LocalTrainingConfig
) -> tf.Tensor:
  """Returns how far `train` goes for a constant gradient of 1, float32 `[]`.

  Number of steps * learning rate, and further with momentum; 0 for a client
  without examples.

  Args:
    mask: `[capacity]`, 1 for real rows.
    config: Local training by SGD.
  """
  if config.num_local_steps:
    has_examples = tf.minimum(tf.reduce_sum(mask), 1.0)
    num_steps = config.num_local_steps * has_examples
  else:
    num_batches = tf.math.ceil(tf.reduce_sum(mask) / config.batch_size)
    num_steps = config.num_local_epochs * num_batches
  momentum = tf.constant(config.optimizer.momentum, tf.float64)
  num_steps = tf.cast(num_steps, tf.float64)
  # Step k goes 1 + momentum + ... + momentum ** (k - 1) times the rate. In
  # float32 the difference vanishes for a momentum near 1.
  remembered = momentum * (1 - tf.pow(momentum, num_steps)) / (1 - momentum)
  num_steps = (num_steps - remembered) / (1 - momentum)
  return tf.cast(config.optimizer.learning_rate * num_steps, tf.float32)


def draw_batches(
  seed: tf.Tensor, mask: tf.Tensor, config: LocalTrainingConfig
) -> batches_lib.Batches:
  """Returns the rows read by each step, of `num_local_steps` or of epochs.

  Args:
    seed: int32 `[2]`.
    mask: `[capacity]`, 1 for real rows.
    config: Epochs (or steps) and batch size.
  """
  if config.num_local_steps:
    return batches_lib.draw_steps(
      seed, mask, config.num_local_steps, config.batch_size
    )
  return batches_lib.draw_epochs(
    seed, mask, config.num_local_epochs, config.batch_size
  )


def next_batch(
  data: algorithm.ClientData, seed: tf.Tensor, config: LocalTrainingConfig
) -> tuple[algorithm.ClientData, unit_dropout.Draws]:
  """Returns the batch of the step that would follow the last one of `train`.

  Also returns the random draws of its dropout.

  Args:
    data: The client's examples, `[capacity, ...]`, capacity >= 1.
    seed: int32 `[2]`, as in `train`.
    config: As in `train`; with epochs, the first batch of a further one.
  """
  length = 'num_local_steps' if config.num_local_steps else 'num_local_epochs'
  longer = dataclasses.replace(config, **{length: getattr(config, length) + 1})
  drawn = draw_batches(seed, data.mask, longer)
  step = config.num_local_steps
  if not step:
    num_batches = tf.shape(drawn.epochs)[0] // longer.num_local_epochs
    step = config.num_local_epochs * num_batches
  return _read(data, drawn, step, seed, config)


def _read(data, drawn, step, seed, config):
  """Returns a step's augmented batch and the random draws of its dropout."""
  batch, draws = drawn.read(data, step, seed)
  augment = augmentation.AUGMENTATIONS[config.augmentation]
  if augment:
    batch = batch.with_x(augment(batch.x, *draws))
  return batch, draws


def train(
  objective: objectives.Objective,
  weights: Structure,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: LocalTrainingConfig,
) -> tuple[Structure, statistics.MeanStat]:
  """Trains on one client's examples, for some epochs or some steps.

  Args:
    objective: Objective to minimise.
    weights: Starting point.
    data: The client's examples.
    seed: int32 `[2]`; determines order and augmentation of the examples, and
      the dropped units.
    config: Epochs or steps, batch size, optimizer; or the exact solver.

  Returns:
    The trained weights, and the mean training loss of the examples, each before
    the step that reads it. For a client without examples, the starting point
    (with a proximal objective up to rounding); see `exact_solution.solve` for
    the exact solver.

  Raises:
    ConfigError: If the optimizer state should be kept, see `train_on`.
  """
  if config.keeps_optimizer_state:
    raise errors.ConfigError(
      'keeps_optimizer_state is True in a local training whose optimizer '
      'begins anew in each round; set it to False, or take one of the '
      'algorithms that keep it: fed_avg, cfl, fed_em, ppfl'
    )
  weights, _, loss = train_on(objective, weights, (), data, seed, config)
  return weights, loss


def initial_slots(weights: Structure, config: LocalTrainingConfig) -> Structure:
  """Returns the optimizer state that a client keeps before its first round.

  Args:
    weights: As in `train_on`, with any values.
    config: As in `train_on`.

  Returns:
    `()` if it keeps none.
  """
  if not config.keeps_optimizer_state:
    return ()
  return optimizers.build_optimizer(config.optimizer).initialize(weights)


def train_on(
  objective: objectives.Objective,
  weights: Structure,
  slots: Structure,
  data: algorithm.ClientData,
  seed: tf.Tensor,
  config: LocalTrainingConfig,
) -> tuple[Structure, Structure, statistics.MeanStat]:
  """Trains as `train` does, from an optimizer state that clients may keep.

  SGD's velocity has the learning rate in it: after a change of the rate that of
  the old one fades as momentum does.

  Args:
    objective: Objective to minimise.
    weights: Starting point.
    slots: As from `initial_slots`, or of the client's last round.
    data: The client's examples.
    seed: int32 `[2]`, as in `train`.
    config: Epochs or steps, batch size, optimizer; or the exact solver.

  Returns:
    As from `train`, with the slots that the client keeps between the two.
  """
  if config.solver == 'exact':
    weights, loss = exact_solution.solve(objective, weights, data)
    return weights, (), loss
  if isinstance(objective, objectives.ProximalLoss):
    # As a decay of the offset, the proximal term costs one pass over the
    # weights instead of four.
    objective = objective.with_decay(config.weight_decay)
    offset = trees.subtract(weights, objective.center)
    offset, slots, loss = _descend(
      objective.at_offset, offset, slots, data, seed, config, objective.weight
    )
    return trees.add(objective.center, offset), slots, loss
  decay = config.weight_decay or None
  return _descend(objective, weights, slots, data, seed, config, decay)


def _descend(objective, weights, kept, data, seed, config, decay):
  """Trains on objective(weights) + decay / 2 * |weights|^2, see `train_on`."""
  optimizer = optimizers.build_optimizer(config.optimizer)
  drawn = draw_batches(seed, data.mask, config)
  num_steps = tf.shape(drawn.epochs)[0]

  @gradients.as_one
  def step_on(batch, draws, weights, slots):
    is_real = tf.reduce_max(batch.mask)
    with unit_dropout.in_step(config.unit_dropout_rate, draws):
      gradient, losses = gradients.gradient(
        objective, weights, batch, optimizer.gradient_scale(is_real)
      )
    weights, slots = optimizer.step(weights, gradient, slots, is_real, decay)
    return weights, slots, losses

  def step(i, weights, slots, loss):
    batch, draws = _read(data, drawn, i, seed, config)
    weights, slots, losses = step_on(batch, draws, weights, slots)
    batch_loss = statistics.weighted_mean(losses, batch.mask)
    return i + 1, weights, slots, trees.add(loss, batch_loss)

  start = (
    tf.constant(0),
    weights,
    kept if config.keeps_optimizer_state else optimizer.initialize(weights),
    statistics.empty_mean(),
  )
  _, weights, slots, loss = tf.while_loop(
    lambda i, *_: i < num_steps, step, start, parallel_iterations=1
  )
  return weights, slots if config.keeps_optimizer_state else (), loss
