"""Named weights of a network, with convolution kernels or their factors.

A plain layer has the weight `<layer>/kernel`; a factored layer has
`<layer>/atoms` and `<layer>/coefficients` instead.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from tff_algos.numerics import filters

Weights = OrderedDict[str, Any]


def plain_layers(weights: Weights) -> list[str]:
  """Returns the layers whose kernel is larger than 1 x 1 and not in factors."""
  return [
    name.removesuffix('/kernel')
    for name, leaf in weights.items()
    if name.endswith('/kernel')
    and len(leaf.shape) == 4
    and max(leaf.shape[:2]) > 1
  ]


def factored_layers(weights: Weights) -> list[str]:
  """Returns the layers whose kernel is in factors."""
  names = [name for name in weights if name.endswith('/atoms')]
  return [name.removesuffix('/atoms') for name in names]


def take_factors(weights: Weights, layer: str) -> filters.FilterFactors:
  """Returns the factors of one layer's kernel."""
  return filters.FilterFactors(
    weights[f'{layer}/atoms'], weights[f'{layer}/coefficients']
  )


def build_kernels(weights: Weights) -> Weights:
  """Returns the weights of the ordinary network that computes the same."""
  plain = OrderedDict()
  for name, leaf in weights.items():
    layer, _, kind = name.rpartition('/')
    if kind == 'atoms':
      factors = take_factors(weights, layer)
      plain[f'{layer}/kernel'] = filters.build_kernel(factors)
    elif kind != 'coefficients':
      plain[name] = leaf
  return plain


def replace_kernels(
  weights: Weights, made: Mapping[str, filters.FilterFactors]
) -> Weights:
  """Returns the weights with factors in the place of kernels.

  Args:
    weights: Of an ordinary convolutional network.
    made: layer -> the factors that replace its kernel.
  """
  replaced = OrderedDict()
  for name, leaf in weights.items():
    layer = name.removesuffix('/kernel')
    if name.endswith('/kernel') and layer in made:
      replaced[f'{layer}/atoms'] = made[layer].atoms
      replaced[f'{layer}/coefficients'] = made[layer].coefficients
    else:
      replaced[name] = leaf
  return replaced
