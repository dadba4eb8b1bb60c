"""Shared data and model of mixtures of linear regressions.

`configs/fed_soft/synthetic.py` and `configs/{cmfl,pfedkm}/regressions.py` extend it.
"""

import ml_collections


def set_data(config: ml_collections.ConfigDict, **source_options) -> None:
  """Sets native distributions, a model without bias and half the squared error."""
  config.model.use_bias = False
  config.algorithm.loss_scale = 0.5
  config.dataset.distributions.kind = 'native'
  config.dataset.splits.held_out_fraction = 0.0
  config.dataset.source.options.update(
    theta_spread=10.0,
    theta_spread_is='variance',
    theta_seed=0,
    **source_options,
  )


def set_small(config: ml_collections.ConfigDict, *, is_smoke: bool) -> None:
  """Sets 40 clients, 50 to 200 training examples each; 8 if `is_smoke`."""
  set_data(
    config,
    num_sources=2,
    num_features=5,
    num_examples_per_source=500 if is_smoke else 5_000,
    num_held_out_per_source=100 if is_smoke else 1_000,
  )
  config.dataset.partition.num_clients = 8 if is_smoke else 40
  config.dataset.sizes.law = 'uniform'
  config.dataset.sizes.minimum = 20 if is_smoke else 50
  config.dataset.sizes.maximum = 40 if is_smoke else 200
  config.dataset.splits.test_ratio = 0.25
