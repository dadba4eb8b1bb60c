"""Random draw of the malicious clients of a run."""

from collections.abc import Sequence

import numpy as np

from tff_algos.core import seeds


def draw(client_ids: Sequence[str], fraction: float, seed: int) -> np.ndarray:
  """Returns which clients are malicious, bool `[num_clients]`.

  Drawn once for a run: the draw depends on clients, fraction and seed alone,
  not on the kind of attack.

  Args:
    client_ids: Ids of the population.
    fraction: Malicious share, in [0, 1]; the number is rounded down.
    seed: The run's own seed, not that of a restart.
  """
  # 0.29 times 100 is just below 29.
  count = int(fraction * len(client_ids) + 1e-9)
  generator = seeds.numpy_generator(seed, 'attackers')
  is_malicious = np.zeros(len(client_ids), bool)
  is_malicious[generator.choice(len(client_ids), count, replace=False)] = True
  return is_malicious
