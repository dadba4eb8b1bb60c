"""Weights of a model in five groups: atoms, coefficients, head, hidden, other.

They are told apart by name: atoms and coefficients of decomposed convolutions
(`numerics.factored_weights`); the head, which is the last layer; hidden dense
layers, whose kernel is a matrix; and the rest, such as biases of convolutions.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.stages.client import weight_groups

ATOMS, COEFFICIENTS, HEAD = 'atoms', 'coefficients', 'head'
HIDDEN, OTHER = 'hidden', 'other'
GROUPS = (ATOMS, COEFFICIENTS, HEAD, HIDDEN, OTHER)

Groups = Mapping[str, tuple[str, ...]]


def names_by_group(model: model_lib.Model) -> Groups:
  """Returns group -> names of its weights, without groups that have none."""
  spec = model.weights_spec()
  head = weight_groups.weight_names(model, (weight_groups.LAST_LAYER,))
  groups = OrderedDict()
  for group in GROUPS:
    members = tuple(
      name for name in spec if _group_of(name, spec, head) == group
    )
    if members:
      groups[group] = members
  return groups


def take(weights: Mapping[str, Any], names: Iterable[str]) -> OrderedDict:
  """Returns the weights of these names."""
  return OrderedDict((name, weights[name]) for name in names)


def put(weights: Mapping[str, Any], part: Mapping[str, Any]) -> OrderedDict:
  """Returns the weights with those of `part` in the place of their own."""
  return OrderedDict(
    (name, part.get(name, leaf)) for name, leaf in weights.items()
  )


def names_of(groups: Groups, wanted: Sequence[str]) -> tuple[str, ...]:
  """Returns the names of all weights in some groups."""
  return tuple(name for group in wanted for name in groups.get(group, ()))


def check_has_atoms(model: model_lib.Model, option: str) -> None:
  """Raises ConfigError if no convolution of the model is decomposed."""
  if ATOMS not in names_by_group(model):
    raise errors.ConfigError(
      f'{option} needs filter atoms, but no convolution of model '
      f'{model.name!r} is decomposed; set '
      'config.model.decomposition.num_atoms, of a convolutional network'
    )


def _group_of(name, spec, head):
  layer, _, kind = name.rpartition('/')
  if kind in (ATOMS, COEFFICIENTS):
    return kind
  if name in head:
    return HEAD
  kernel = spec.get(f'{layer}/kernel')
  return HIDDEN if kernel is not None and len(kernel.shape) == 2 else OTHER
