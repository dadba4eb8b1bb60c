"""Low-rank factorization of any network's kernels.

FedPara (Hyeon-Woo, Ye-Bin and Oh, "FedPara: Low-Rank Hadamard Product for
Communication-Efficient Federated Learning", ICLR 2022, arXiv:2108.06098): a
kernel is the entrywise product of two matrices of rank R. Its rank is up to
R^2, with 2 R (inputs + outputs) parameters (Proposition 1). For a convolution
with k x k pixels, each of the two is a tensor core [k, k, R, R] times a matrix
on each side, with 2 R (inputs + outputs + R k^2) parameters (Proposition 3). To
algorithms these are ordinary weights.
"""

import dataclasses
import math
from collections import OrderedDict

import tensorflow as tf

from tff_algos.core import checks, errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import index_random

LAYERS = ('none', 'convolutions', 'all_but_last')


@dataclasses.dataclass(frozen=True)
class LowRankConfig:
  """Whether and how kernels are low-rank products.

  Attributes:
    layers: Which kernels: `'none'`; those of `'convolutions'` larger than 1 x
      1; or `'all_but_last'`, also of dense layers but the last. A kernel that
      would have more parameters even at the smallest rank stays unchanged.
    rank_share: gamma, in [0, 1]: 0 for the smallest rank R whose product can
      have full rank, R^2 >= min(inputs, outputs); 1 for the largest with no
      more parameters than the kernel has.
  """

  layers: str = 'none'
  rank_share: float = 0.1

  def __post_init__(self):
    checks.check_one_of('layers', self.layers, LAYERS)
    checks.check_fraction('rank_share', self.rank_share)


def parametrize(
  model: model_lib.Model, config: LowRankConfig
) -> model_lib.Model:
  """Returns the model with `<layer>/x_1`, `y_1`, ... in the place of kernels.

  `x` is `[inputs, R]`, `y` `[outputs, R]`; a convolution also has `core`
  `[height, width, R, R]`. They are initialized normally with one deviation per
  layer, such that an entry of the kernel has variance 2 / fan_in (He et al.
  2015).

  Args:
    model: Has kernels `[inputs, outputs]` or `[height, width, inputs,
      outputs]`.
    config: How; `layers` `'none'` returns `model` itself.

  Raises:
    ConfigError: If no kernel would become smaller.
  """
  if config.layers == 'none':
    return model
  spec = model.weights_spec()
  shapes = _shapes(spec, config)
  if not shapes:
    raise errors.ConfigError(
      f'low_rank.layers is {config.layers!r}, but {model.name} has no such '
      "kernel that would become smaller; set it to 'none'"
    )

  def initialize(seed):
    plain, weights = model.initialize(seed), OrderedDict()
    for i, (name, leaf) in enumerate(plain.items()):
      if name in shapes:
        layer_seed = index_random.fold_in(seed, 1 << 17 | i)
        weights.update(_draw(name, leaf.shape, shapes[name], layer_seed))
      else:
        weights[name] = leaf
    return weights

  def apply(weights, x):
    kernels = OrderedDict(
      (name, build_kernel(_factors_of(weights, name)))  # pyright: ignore[reportArgumentType]
      for name in shapes
    )
    return model.apply({**weights, **kernels}, x)

  return dataclasses.replace(model, initialize=initialize, apply=apply)


def build_kernel(
  factors: tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]],
) -> tf.Tensor:
  """Returns the kernel, `[inputs, outputs]` or `[height, width, ...]`.

  Args:
    factors: Two of `x` `[inputs, R]`, `y` `[outputs, R]` and, of a convolution,
      `core` `[height, width, R, R]`.
  """
  sides = []
  for one in factors:
    left = one['x']
    if 'core' in one:
      left = tf.matmul(left, one['core'])
    sides.append(tf.matmul(left, one['y'], transpose_b=True))
  return sides[0] * sides[1]


def rank_of(shape: tuple[int, ...], rank_share: float) -> int | None:
  """Returns the rank R of a kernel; None if no rank makes it smaller.

  Args:
    shape: Of the kernel.
    rank_share: gamma, in [0, 1].
  """
  least = math.ceil(math.sqrt(min(shape[-2:])))
  most = least
  while _num_numbers(shape, most + 1) <= math.prod(shape):
    most += 1
  if _num_numbers(shape, least) > math.prod(shape):
    return None
  return round((1 - rank_share) * least + rank_share * most)


def _num_numbers(shape, rank):
  pixels = math.prod(shape[:-2]) if len(shape) == 4 else 0
  return 2 * rank * (sum(shape[-2:]) + rank * pixels)


def _shapes(spec, config):
  """Returns kernel name -> (part -> shape), for one of the two matrices."""
  *_, last = spec
  head = last.rpartition('/')[0]
  shapes = {}
  for name, leaf in spec.items():
    shape = tuple(leaf.shape)
    is_convolution = len(shape) == 4 and max(shape[:2]) > 1
    is_dense = len(shape) == 2 and config.layers == 'all_but_last'
    layer, _, kind = name.rpartition('/')
    rank = None
    if kind == 'kernel' and layer != head and (is_convolution or is_dense):
      rank = rank_of(shape, config.rank_share)
    if rank:
      core = {'core': (*shape[:2], rank, rank)} if is_convolution else {}
      shapes[name] = {'x': (shape[-2], rank), 'y': (shape[-1], rank), **core}
  return shapes


def _draw(name, kernel_shape, shapes, seed):
  """Returns name -> initial value, for both matrices of one kernel."""
  layer = name.rpartition('/')[0]
  rank = shapes['x'][1]
  variance = 2 / math.prod(kernel_shape[:-1])
  # An entry of one matrix is a sum of `num_products` products, each of one
  # number of every part.
  num_products, num_parts = rank ** (len(shapes) - 1), len(shapes)
  deviation = (math.sqrt(variance) / num_products) ** (1 / (2 * num_parts))
  drawn = {}
  for side in (1, 2):
    for part, shape in shapes.items():
      drawn[f'{layer}/{part}_{side}'] = tf.random.stateless_normal(
        shape,
        index_random.fold_in(seed, len(drawn)),
        stddev=deviation,
      )
  return drawn


def _factors_of(weights, name):
  layer = name.rpartition('/')[0]
  return tuple(
    {
      part: weights[f'{layer}/{part}_{side}']
      for part in ('x', 'y', 'core')
      if f'{layer}/{part}_{side}' in weights
    }
    for side in (1, 2)
  )
