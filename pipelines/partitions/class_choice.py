"""A random choice of different classes for each client, always in time."""

import numpy as np

from tff_algos.core.structures import Array


def draw_classes(
  places: Array, num_clients: int, generator: np.random.Generator
) -> Array:
  """Draws which classes each client has, all different.

  The clients choose one after another, each class with a probability in
  proportion to its places left; a class that has as many places left as there
  are clients must be taken. So nobody is ever left without a choice, and no
  drawing is repeated. The clients are shuffled in the end: all are alike.

  Args:
    places: How many clients must have each class, int64 `[num_classes]`, none
      above `num_clients`; their sum is `num_clients` times the classes that
      each client has.
    num_clients: Number of clients.
    generator: The randomness.

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
