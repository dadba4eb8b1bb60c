"""Random assignment of distinct classes to clients without rejection."""

import numpy as np

from tff_algos.core.structures import Array


def draw_classes(
  places: Array, num_clients: int, generator: np.random.Generator
) -> Array:
  """Draws distinct classes for each client.

  The clients draw one after another, each class with a probability proportional
  to its places left; a class with as many places left as clients must be taken.
  So a client never runs out of classes, and no draw is repeated. The clients
  are shuffled at the end, which makes them exchangeable.

  Args:
    places: Number of clients that must have each class, int64 `[num_classes]`,
      at most `num_clients`; the sum is `num_clients` times the number of
      classes per client.
    num_clients: Number of clients.
    generator: Random generator.

  Returns:
    bool `[num_clients, num_classes]`; column sums are `places`.
  """
  left = np.array(places)
  num_each = int(left.sum()) // num_clients
  chosen = np.zeros((num_clients, len(left)), bool)
  for k in range(num_clients):
    # Weighted sampling without replacement: the largest keys u^(1/w).
    with np.errstate(divide='ignore'):
      key = np.log(generator.random(len(left))) / left
    key = np.where(left > 0, key, -np.inf)
    key = np.where(left == num_clients - k, np.inf, key)
    classes = np.argsort(-key, kind='stable')[:num_each]
    chosen[k, classes] = True
    left[classes] -= 1
  return chosen[generator.permutation(num_clients)]
