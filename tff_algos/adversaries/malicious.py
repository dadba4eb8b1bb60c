"""Who of the clients is malicious: one draw for whatever malice a run has."""

from collections.abc import Sequence

import numpy as np

from tff_algos.core import seeds


def draw(client_ids: Sequence[str], fraction: float, seed: int) -> np.ndarray:
  """Returns who is malicious, bool `[num_clients]`.

  Drawn once for a run: of the same clients, fraction and seed always the same,
  whatever these clients then do.

  Args:
    client_ids: Of the population.
    fraction: Share of them, in [0, 1]; their number is rounded down.
    seed: The run's, that of no restart.
  """
  # 0.29 times 100 is just below 29.
  count = int(fraction * len(client_ids) + 1e-9)
  generator = seeds.numpy_generator(seed, 'attackers')
  is_malicious = np.zeros(len(client_ids), bool)
  is_malicious[generator.choice(len(client_ids), count, replace=False)] = True
  return is_malicious
