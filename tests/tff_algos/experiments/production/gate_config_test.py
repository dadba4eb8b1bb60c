import dataclasses

import pytest

from tff_algos.core import errors
from tff_algos.experiments.production import gate_config


@pytest.mark.parametrize(
  ('option', 'value', 'words'),
  [
    ('max_fall', -0.01, '^max_fall must be a finite number >= 0'),
    ('max_cluster_fall', float('nan'), '^max_cluster_fall'),
    ('confidence', 1.0, '^confidence must be a number > 0 and < 1'),
    ('confidence', 0.0, '^confidence must be a number > 0 and < 1'),
    ('min_units', 1, '^min_units must be an integer >= 2'),
    ('num_resamples', 99, '^num_resamples must be an integer >= 100'),
    ('batch_size', 0, '^batch_size'),
    ('max_batch_seconds', 0, '^max_batch_seconds'),
  ],
)
def test_values_out_of_range(option, value, words):
  with pytest.raises(errors.ConfigError, match=words):
    gate_config.GateConfig(**{option: value})


def test_every_threshold_is_checked():
  names = [field.name for field in dataclasses.fields(gate_config.GateConfig)]
  thresholds = [name for name in names if name.endswith('fall')]
  assert len(thresholds) == 7
  for name in thresholds:
    with pytest.raises(errors.ConfigError, match=f'^{name} '):
      gate_config.GateConfig(**{name: -1.0})
