"""Units are dropped in the wide LeNet, in all trainings of it, and nowhere else."""

import importlib

import pytest

from configs import few_classes
from tests.testing import programs

_ALGORITHMS = sorted(
  path.parent.name
  for path in programs.ROOT.glob('configs/*/personal_models.py')
)


def _rates(section):
  """Yields the rate of every training in a section of a config."""
  for name, value in section.items():
    if hasattr(value, 'items'):
      yield from _rates(value)
    elif name == 'unit_dropout_rate':
      yield value


@pytest.mark.parametrize('variant', few_classes.VARIANTS)
@pytest.mark.parametrize('algorithm', _ALGORITHMS)
def test_the_wide_network_alone_drops_units(algorithm, variant):
  module = importlib.import_module(f'configs.{algorithm}.personal_models')
  config = module.get_config(variant)
  is_wide = config.model.get('variant') == 'fed_rep_wide'
  assert is_wide == variant.startswith(('cifar100', 'tiny'))
  rates = list(_rates(config.algorithm.to_dict()))
  assert rates and set(rates) == {0.6 if is_wide else 0.0}
