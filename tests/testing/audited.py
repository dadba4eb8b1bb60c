"""A small training on regressions whose audit log has every upload."""

from typing import Any

import ml_collections

from configs.cmfl import regressions


def make_config(**algorithm: Any) -> ml_collections.ConfigDict:
  """Returns the config; options of the algorithm replace those it has."""
  values = regressions.get_config('smoke')
  values.runtime.name = 'debug'
  values.training.update({'num_rounds': 4, 'checkpoint_interval': 2})
  values.training.evaluation_interval = 4
  values.algorithm.update({'audit': 'uploads', **algorithm})
  return values
