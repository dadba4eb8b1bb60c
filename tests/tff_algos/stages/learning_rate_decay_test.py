"""Tests of learning rates that fall."""

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.stages import learning_rate_decay


def test_rates_fall_after_the_rounds_and_not_in_them():
  decay = learning_rate_decay.DecayConfig((100, 150), 0.1)
  found = [decay.scale(round_num) for round_num in (1, 100, 101, 150, 151)]
  np.testing.assert_allclose(found, [1, 1, 0.1, 0.1, 0.01])


def test_without_rounds_nothing_falls():
  assert learning_rate_decay.DecayConfig().scale(10**6) == 1


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'after_rounds': (0,)}, 'after_rounds must be an integer >= 1, got 0'),
    ({'factor': 0.0}, 'factor must be a finite number > 0, got 0.0'),
    ({'factor': 1.5}, 'factor must be a number from 0 to 1, got 1.5'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    learning_rate_decay.DecayConfig(**options)
