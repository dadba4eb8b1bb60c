"""Personalized models: mixtures of canonical models with shared weights.

Di et al., "PPFL: A Personalized Federated Learning Framework for Heterogeneous
Population", arXiv:2310.14337, Eq. 4 and Fig. 2. The weights of a model are
split by name: shared ones theta_com, one set for all, and canonical ones
theta_k, in `num_canonical` sets. A client with membership c computes

  outputs         sum_k c_k r(theta_com, theta_k; x)     (PPFL1)
  parameters      r(theta_com, sum_k c_k theta_k; x)     (PPFL2)
  probabilities   sum_k c_k softmax(r(theta_com, theta_k; x))    (Eq. 11)

Where r is affine in the canonical weights (one last dense layer, a regression)
`outputs` and `parameters` are the same function, and one model of mixed weights
is computed instead of `num_canonical`. For dense and plain convolution layers,
`parameters` also is the mixture of each layer's outputs.
"""

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Sequence

import tensorflow as tf

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees
from tff_algos.stages.client import weight_groups
from tff_algos.stages.clusters import initialization, mixtures

MIXINGS = ('outputs', 'parameters', 'probabilities')
_NUM_TRIED = 4


@dataclasses.dataclass(frozen=True)
class Mixture:
  """A model with several sets of canonical weights; see `build`.

  `model_weights` below is a mapping of `shared` weights and `canonical` ones,
  `[num_canonical, ...]`.

  Attributes:
    model: The model of one set.
    num_canonical: Number of sets, >= 1.
    canonical: Names of the canonical weights, in the model's order.
    mixing: One of `MIXINGS`.
    is_affine: Whether outputs are affine in the canonical weights.
    mixes_parameters: Whether one model of mixed weights is computed instead of
      `num_canonical` models.
  """

  model: model_lib.Model
  num_canonical: int
  canonical: tuple[str, ...]
  mixing: str
  is_affine: bool
  mixes_parameters: bool

  @functools.cached_property
  def _groups(self) -> weight_groups.WeightGroups:
    """Returns the split, in which canonical weights are the private ones."""
    return weight_groups.WeightGroups(self.model, self.canonical)

  @property
  def num_parameters(self) -> int:
    """Returns the number of all weights, shared and canonical."""
    shared, canonical = map(trees.num_entries, self._groups.spec)
    return shared + self.num_canonical * canonical

  def initialize(self, seed: tf.Tensor) -> Structure:
    """Returns model weights; each canonical set is a draw of its own.

    Args:
      seed: int32 `[2]`; algorithms with the same seed start alike.
    """
    drawn = initialization.cluster_models(self.model, self.num_canonical, seed)
    shared, canonical = self._groups.split(drawn)
    return OrderedDict(shared=trees.take(shared, 0), canonical=canonical)

  def equal_shares(self) -> tf.Tensor:
    """Returns the initial membership of all clients, `[num_canonical]`."""
    return tf.fill([self.num_canonical], 1 / self.num_canonical)

  def join(self, shared: Structure, canonical: Structure) -> model_lib.Weights:
    """Returns the weights of `model` with these shared and canonical ones."""
    return self._groups.join(shared, canonical)

  def stack(self, model_weights: Structure) -> model_lib.Weights:
    """Returns `num_canonical` whole models, `[num_canonical, ...]`."""
    shared = trees.repeat(model_weights['shared'], self.num_canonical)
    return self.join(shared, model_weights['canonical'])

  def apply(
    self, model_weights: Structure, membership: tf.Tensor, x: tf.Tensor
  ) -> tf.Tensor:
    """Returns the personalized outputs, `[batch, *label_shape, num_outputs]`.

    Logits, or a regression's prediction; in mode `probabilities` the
    logarithms of mixed probabilities.

    Args:
      model_weights: See the class.
      membership: `[num_canonical]`, on the simplex.
      x: `[batch, ...]`.
    """
    if self.mixes_parameters:
      mixed = trees.mix(membership, model_weights['canonical'])
      return self.model.apply(self.join(model_weights['shared'], mixed), x)
    return self.mix(self.canonical_outputs(model_weights, x), membership)

  def canonical_outputs(
    self, model_weights: Structure, x: tf.Tensor
  ) -> tf.Tensor:
    """Returns every canonical model's outputs, `[num_canonical, batch, ...]`.

    Layers of shared weights before the canonical ones are computed once.
    """
    return self.model.map_stacked(
      lambda canonical: self.model.apply(
        self.join(model_weights['shared'], canonical), x
      ),
      model_weights['canonical'],
    )

  def mix(self, outputs: tf.Tensor, membership: tf.Tensor) -> tf.Tensor:
    """Returns the mixture of canonical outputs, as `apply` would.

    Args:
      outputs: `[num_canonical, batch, *label_shape, num_outputs]`.
      membership: `[num_canonical]`.
    """
    if self.mixing == 'probabilities':
      return mixtures.mix_probabilities(self.model, outputs, membership)
    return tf.tensordot(membership, outputs, axes=1)

  def at(self, membership: tf.Tensor) -> model_lib.Model:
    """Returns the model of `shared` and `canonical` weights of one membership.

    Args:
      membership: `[num_canonical]`, held fixed.
    """
    return dataclasses.replace(
      self.model, apply=lambda weights, x: self.apply(weights, membership, x)
    )

  def personalized_model(self) -> model_lib.Model:
    """Returns the model of `shared`, `canonical` and `membership` weights.

    It starts with equal memberships.
    """

    def initialize(seed):
      return self.personalize(self.initialize(seed), self.equal_shares())

    return dataclasses.replace(
      self.model,
      name=f'{self.mixing}_of_{self.num_canonical}_{self.model.name}',
      initialize=initialize,
      apply=lambda weights, x: self.apply(weights, weights['membership'], x),
    )

  def personalize(
    self, model_weights: Structure, membership: tf.Tensor
  ) -> Structure:
    """Returns the weights of `personalized_model` of a membership."""
    return OrderedDict(**model_weights, membership=membership)


def build(
  model: model_lib.Model,
  num_canonical: int,
  canonical: Sequence[str],
  mixing: str,
) -> Mixture:
  """Builds a mixture.

  Args:
    model: Of one set of weights.
    num_canonical: Number of sets, >= 1.
    canonical: The canonical weights, see `weight_groups.weight_names`.
    mixing: One of `MIXINGS`.

  Raises:
    ConfigError: If the model has no such weights, or none is named, or all
      draws of them are equal: memberships would stay uniform and the sets equal
      for ever.
  """
  names = weight_groups.weight_names(model, canonical, 'canonical')
  if not names:
    raise errors.ConfigError(
      f'canonical {tuple(canonical)!r} names no weight of model '
      f'{model.name!r}; name weights or layers, or {weight_groups.ALL!r}, or '
      f'{weight_groups.LAST_LAYER!r}'
    )
  if num_canonical > 1 and initialization.start_equal(model, names):
    raise errors.ConfigError(
      f'the canonical weights of model {model.name!r}, {", ".join(names)}, '
      'always start with the same values: equal canonical models stay equal, '
      'and all memberships uniform; make weights canonical that start at '
      'random, '
      'or name some of these in model.pretrained.fresh if they come from a file'
    )
  is_affine = _is_affine(model, names)
  mixes_outputs = mixing == 'outputs' or (
    mixing == 'probabilities' and model.task == model_lib.REGRESSION
  )
  return Mixture(
    model,
    num_canonical,
    names,
    mixing,
    is_affine,
    mixing == 'parameters' or (mixes_outputs and is_affine),
  )


def _is_affine(model, names):
  """Returns whether outputs are affine in the named weights.

  Only if all are of the last layer (as their names tell); and by trying, as a
  layer may have an activation: random sets of weights and their mean. Of other
  layers no trial tells whether some input switches an activation. False where
  outputs are affine only costs time.
  """
  last = weight_groups.weight_names(model, (weight_groups.LAST_LAYER,))
  if not set(names) <= set(last):
    return False
  with tf.init_scope():
    seed = tf.constant([1, 2])
    draws = initialization.cluster_models(model, _NUM_TRIED, seed)
    # Moved, as biases start at 0.
    moved = OrderedDict(
      (name, draws[name] + tf.random.stateless_normal(draws[name].shape, seed))  # pyright: ignore[reportArgumentType]
      for name in names
    )
    x = model.random_inputs(16, seed)

    def outputs(shares):
      canonical = trees.mix(shares, moved)
      return model.apply(
        OrderedDict(
          (name, canonical[name] if name in names else stack[0])
          for name, stack in draws.items()
        ),
        x,
      )

    each = tf.stack([outputs(one_hot) for one_hot in tf.eye(_NUM_TRIED)])
    mean = tf.fill([_NUM_TRIED], 1 / _NUM_TRIED)
    gap = outputs(mean) - tf.reduce_mean(each, axis=0)
    scale = tf.reduce_max(tf.abs(each))
    return bool(
      tf.reduce_max(tf.abs(gap)) <= 10 * model.output_tolerance * scale
    )
