"""The defaults of all models; `precision_test.py` has what is refused."""

from tff_algos.models import model_options


def test_defaults_are_float32_from_random_weights():
  options = model_options.ModelConfig()
  assert (options.compute_dtype, options.pretrained.file) == ('float32', '')
