"""The draw of a round's clients, made again for oracles."""

import numpy as np

from tff_algos.core import seeds


def drawn(seed, round_num, available, cohort_size):
  """Returns the indices of those who are drawn of the `available`, sorted."""
  generator = seeds.numpy_generator(seed, 'cohort', round_num)
  return np.sort(generator.choice(available, cohort_size, replace=False))
