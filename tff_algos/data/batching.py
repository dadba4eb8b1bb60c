"""Dense, padded client data from examples."""

from collections.abc import Sequence

import numpy as np

from tff_algos.core import algorithm, errors
from tff_algos.core.structures import Structure
from tff_algos.data import schema


def stack(
  clients: Sequence[schema.Examples], capacity: int
) -> algorithm.ClientData:
  """Returns the examples of several clients with a leading client axis.

  Args:
    clients: At least one client's examples; a client may have none.
    capacity: Rows of each client.

  Returns:
    NumPy arrays: x `[num_clients, capacity, ...]` and y `[num_clients,
    capacity]` in their dtypes, mask float32 `[num_clients, capacity]`.

  Raises:
    DataError: If a client has more than `capacity` examples.
  """
  largest = max(client.num_examples for client in clients)
  if largest > capacity:
    raise errors.DataError(
      f'a client has {largest} examples and the capacity is {capacity}; '
      'raise the capacity, as examples are never truncated.'
    )
  shape = (len(clients), capacity)
  x = np.zeros(shape + clients[0].x.shape[1:], clients[0].x.dtype)
  y = np.zeros(shape + clients[0].y.shape[1:], clients[0].y.dtype)
  mask = np.zeros(shape, np.float32)
  for i, client in enumerate(clients):
    x[i, : client.num_examples] = client.x
    y[i, : client.num_examples] = client.y
    mask[i, : client.num_examples] = 1
  columns: Structure = (x, y, mask)
  return algorithm.ClientData(*columns)
