"""Shared and private weights of a model (partial personalization)."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.numerics import trees

ALL = 'all'
LAST_LAYER = 'last_layer'
ALL_BUT_LAST_LAYER = 'all_but_last_layer'


class Parts(NamedTuple):
  """A model's weights in two parts.

  Attributes:
    shared: Weights common to all clients.
    private: A client's own weights.
  """

  shared: model_lib.Weights
  private: model_lib.Weights


class WeightGroups:
  """Split of a model's weights by name into shared and private ones.

  Attributes:
    model: The model.
    private: Names of the private weights, in the model's order.
  """

  def __init__(self, model: model_lib.Model, private: Sequence[str]):
    """Splits the weights of a model.

    Args:
      model: The model.
      private: Selection of the private weights, see `weight_names`.

    Raises:
      ConfigError: If the model has no such weights.
    """
    self.model = model
    self.private = weight_names(model, private, 'private')
    self._spec = model.weights_spec()

  @property
  def spec(self) -> Parts:
    """Returns the types of both parts."""
    return self.split(self._spec)

  @property
  def num_shared(self) -> int:
    """Returns the number of shared scalars."""
    return trees.num_entries(self.spec.shared)

  def split(self, weights: model_lib.Weights) -> Parts:
    """Returns both parts of the model's weights."""
    parts = Parts(OrderedDict(), OrderedDict())
    for name, leaf in weights.items():
      part = parts.private if name in self.private else parts.shared
      part[name] = leaf
    return parts

  def join(
    self, shared: model_lib.Weights, private: model_lib.Weights
  ) -> model_lib.Weights:
    """Returns the model's weights from their parts; inverse of `split`."""
    both = {**shared, **private}
    return OrderedDict((name, both[name]) for name in self._spec)


def weight_names(
  model: model_lib.Model, wanted: Sequence[str], option: str = 'weights'
) -> tuple[str, ...]:
  """Returns the names of selected weights, in the model's order.

  Args:
    model: The model.
    wanted: Names of weights, or of layers and blocks: `dense_1` selects all
      weights `dense_1/...`. Or `'all'`; `'last_layer'`, the head; or
      `'all_but_last_layer'`, the body, which is empty for a model of one layer.
      Weights without a `/` are one layer.
    option: Config key of the selection, for errors.

  Raises:
    ConfigError: If there is no such weight or layer.
  """
  known = tuple(model.weights_spec())
  head = known[-1].rpartition('/')[0]
  last_layer = {name for name in known if name.rpartition('/')[0] == head}
  groups = {
    ALL: set(known),
    LAST_LAYER: last_layer,
    ALL_BUT_LAST_LAYER: set(known) - last_layer,
  }
  chosen = set()
  for group in wanted:
    named = {
      name for name in known if name == group or name.startswith(f'{group}/')
    }
    if group not in groups and not named:
      raise errors.ConfigError(
        f'{option}: {group!r} is neither a weight nor a layer of model '
        f'{model.name!r}, whose weights are {", ".join(known)}; name some of '
        f'them, or {ALL!r}, {LAST_LAYER!r} or {ALL_BUT_LAST_LAYER!r}'
      )
    chosen |= groups.get(group, named)
  return tuple(name for name in known if name in chosen)
