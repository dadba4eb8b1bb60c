"""Client sources: splits of a federated dataset for runtimes."""

import collections
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import errors
from tff_algos.core.structures import Array
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema

# Rows of a pseudo client, one piece of a large held-out set.
_PIECE_ROWS = 500
# Bytes of a split's cache of examples.
_CACHE_BYTES = 1 << 30


class DatasetSource:
  """One split of the clients of a dataset, with a cache of read examples.

  Attributes:
    population: The clients, in the dataset's order.
  """

  def __init__(
    self,
    dataset: dataset_lib.FederatedDataset,
    split: str,
    *,
    unseen: bool = False,
  ):
    """Reads no examples yet.

    Args:
      dataset: The dataset.
      split: `'train'`, `'validation'` or `'test'`.
      unseen: Whether to read the unseen clients instead of the participating.
    """
    self._dataset = dataset
    self._split = split
    self._cache: collections.OrderedDict[int, schema.Examples] = (
      collections.OrderedDict()
    )
    self._cached_bytes = 0
    if unseen:
      ids = dataset.unseen_client_ids
      sizes = dataset.num_examples(split, schema.UNSEEN)
    else:
      ids, sizes = dataset.client_ids, dataset.num_examples(split)
    self.population = algorithm_lib.Population(
      tuple(ids), np.asarray(sizes), dataset.shards_of(ids)
    )

  def examples(self, client_index: int) -> schema.Examples:
    """Returns one client's examples.

    Raises:
      DataError: If its record is damaged.
    """
    if client_index in self._cache:
      self._cache.move_to_end(client_index)
      return self._cache[client_index]
    examples = self._dataset.examples(
      self.population.client_ids[client_index], self._split
    )
    self._cache[client_index] = examples
    self._cached_bytes += _num_bytes(examples)
    while self._cached_bytes > _CACHE_BYTES and len(self._cache) > 1:
      # The least recently used.
      _, dropped = self._cache.popitem(last=False)
      self._cached_bytes -= _num_bytes(dropped)
    return examples

  def stream(self) -> Iterator[schema.Examples]:
    """Yields the examples of all clients in their order; caches none.

    Raises:
      DataError: If a record is damaged.
    """
    for client_index, client_id in enumerate(self.population.client_ids):
      cached = self._cache.get(client_index)
      yield cached or self._dataset.examples(client_id, self._split)


class ArraySource:
  """Clients whose examples are arrays in memory, which never change.

  Some runtimes read them once, others in every round.

  Attributes:
    population: The clients, in the order of the mapping.
  """

  def __init__(self, clients: Mapping[str, Sequence[Array]]):
    """Takes the examples of each client.

    Args:
      clients: client id -> features `[n, ...]` and labels `[n, ...]`, floats or
        integers, which become float32 or int32; optionally the source
        distribution of each example, int `[n]`. They are copied unless they are
        read-only (`array.flags.writeable`) and of that type.

    Raises:
      DataError: If an id is no string, a client's arrays are not two or three
        of one length, or a value is no number or does not fit.
    """
    self._examples = []
    for client_id, arrays in clients.items():
      if not isinstance(client_id, str):
        raise errors.DataError(
          f'client id {client_id!r} is {type(client_id).__name__}, not str; '
          f'take {str(client_id)!r}'
        )
      count = len(arrays) if hasattr(arrays, '__len__') else 0
      if count not in (2, 3):
        raise errors.DataError(
          f'client {client_id!r} has {count} arrays; give features, '
          'labels and, optionally, source distributions'
        )
      narrow = [_narrow(array, client_id) for array in arrays]
      lengths = [len(array) for array in narrow]
      if len({*lengths}) > 1:
        raise errors.DataError(
          f'client {client_id!r} has arrays of the lengths {lengths}; give an '
          'entry for each example in all of them'
        )
      if len(narrow) == 2:
        narrow.append(_narrow(np.zeros(lengths[0], np.int32), client_id))
      self._examples.append(schema.Examples(*narrow))
    self.population = algorithm_lib.Population(
      tuple(clients),
      np.array([one.num_examples for one in self._examples], np.int64),
    )

  def examples(self, client_index: int) -> schema.Examples:
    """Returns one client's examples."""
    return self._examples[client_index]

  def stream(self) -> Iterator[schema.Examples]:
    """Yields the examples of all clients in their order."""
    yield from self._examples


def _num_bytes(examples: schema.Examples) -> int:
  return sum(array.nbytes for array in examples)


def _narrow(given: Array, client_id: str) -> Array:
  """Returns an array of floats as float32, one of integers as int32.

  It is read-only, and a copy if the given array is not.
  """
  try:
    array = np.asarray(given)
  except ValueError as error:
    raise errors.DataError(
      f'client {client_id!r} has examples that differ in shape: {error}'
    ) from error
  if array.dtype.kind not in 'biuf' or not array.ndim:
    raise errors.DataError(
      f'client {client_id!r} has an array of {array.dtype}, shape '
      f'{array.shape}; give floats or integers `[n, ...]`'
    )
  is_float = array.dtype.kind == 'f'
  with np.errstate(over='ignore'):
    narrow = array.astype(
      np.float32 if is_float else np.int32, copy=array.flags.writeable
    )
  if narrow.dtype != array.dtype:
    is_lost = (
      np.isinf(narrow) != np.isinf(array) if is_float else narrow != array
    )
    if is_lost.any():
      raise errors.DataError(
        f'client {client_id!r} has the value {array[is_lost][0]}, which '
        f'{narrow.dtype} cannot hold; scale or renumber'
      )
  narrow.flags.writeable = False
  return narrow


class HeldOutSource(ArraySource):
  """The held-out set of each source distribution, cut into pieces.

  A set of thousands of examples is larger than usual clients; in pieces it fits
  the same graphs and the same memory.

  Attributes:
    population: One pseudo client a piece.
    source_index: Source distribution of each piece, int `[pieces]`.
  """

  def __init__(self, dataset: dataset_lib.FederatedDataset):
    """Reads the held-out sets of a dataset."""
    pieces, sources = {}, []
    for source, name in enumerate(dataset.source_names):
      held_out = dataset.held_out(source)
      for start in range(0, held_out.num_examples, _PIECE_ROWS):
        piece = slice(start, start + _PIECE_ROWS)
        pieces[f'held_out/{name}/{start}'] = schema.take(held_out, piece)
        sources.append(source)
    super().__init__(pieces)
    self.source_index = np.asarray(sources)
