"""Random arrays, the same in every run."""

import numpy as np


def normal(*shape: int, seed: int = 0) -> np.ndarray:
  """Draws standard normal numbers, float32."""
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
