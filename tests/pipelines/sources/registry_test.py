import pytest

from pipelines.sources import registry
from tff_algos.core import errors


def test_unknown_source_names_all():
  with pytest.raises(
    errors.ConfigError, match="'cifar', 'csv', .*, 'two_gaussians', got 'mnist'"
  ):
    registry.create('mnist', {}, 0)


@pytest.mark.parametrize('name', sorted(registry.SOURCES))
def test_unknown_option_is_refused(name):
  with pytest.raises(errors.ConfigError, match="no key 'colour'"):
    registry.create(name, {'colour': 1}, 0)
