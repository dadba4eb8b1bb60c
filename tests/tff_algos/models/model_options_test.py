"""The options of all models are checked."""

import pytest

from tff_algos.core import errors
from tff_algos.models import model_options


def test_defaults_are_float32_from_random_weights():
  options = model_options.ModelConfig()
  assert (options.compute_dtype, options.pretrained.file) == ('float32', '')


@pytest.mark.parametrize(
  ('dtype', 'text'),
  [
    ('float16', "compute_dtype 'float16' is refused"),
    ('float64', "compute_dtype must be one of 'float32', 'bfloat16'"),
  ],
)
def test_other_types_are_refused(dtype, text):
  with pytest.raises(errors.ConfigError, match=text):
    model_options.ModelConfig(compute_dtype=dtype)
