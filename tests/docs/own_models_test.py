"""`docs/own_models.md`: its programs run as printed."""

import re

import numpy as np
import tensorflow as tf

from tests.testing import programs
from tff_algos.models import registry

_TEXT = (programs.ROOT / 'docs' / 'own_models.md').read_text()
_NET, _CALL, _MOBILENET = re.findall(r'```python\n(.*?)```', _TEXT, re.DOTALL)


def test_the_net_is_that_of_the_example():
  example = (programs.ROOT / 'docs' / 'examples' / 'own_net.py').read_text()
  assert example.endswith(_NET)


def test_the_programs_of_the_page_run(kept_registries):
  names = {'__name__': '__main__'}
  for code in (_NET, _CALL, _MOBILENET):
    exec(compile(code, 'docs/own_models.md', 'exec'), names)
  assert names['logits'].shape == (2, 10)
  config = registry.parse_config({'name': 'own_net'})
  model = registry.build_model(
    config, task='classification', input_shape=(8, 8, 1), num_outputs=10
  )
  np.testing.assert_array_equal(
    model.initialize(tf.constant([0, 1]))['dense/kernel'],
    names['weights']['dense/kernel'],
  )
  assert model.name == 'own_net'
