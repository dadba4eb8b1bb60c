import pytest

from tff_algos.core import errors
from tff_algos.runtimes.tff import tff_config


@pytest.mark.parametrize(
  ('option', 'value'),
  [
    ('start_timeout_seconds', 0),
    ('start_timeout_seconds', 1e10),
    ('max_concurrent_calls', -2),
    ('workers', ('10.0.0.7:8000', 'nowhere')),
  ],
)
def test_option_out_of_range_is_refused(option, value):
  with pytest.raises(errors.ConfigError, match=option.removesuffix('s')):
    tff_config.TffConfig(**{option: value})
