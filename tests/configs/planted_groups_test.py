"""Tests that PPFL's shared configs hold the paper's networks and clients."""

import pytest
import tensorflow as tf

from configs import natural_clients, planted_groups
from pipelines import options
from pipelines.sources import registry as sources
from tests.testing import raw_sources
from tff_algos.core import config as config_lib
from tff_algos.models import registry as models
from tff_algos.numerics import trees


def _num_parameters(config, input_shape, num_outputs, **labels):
  model = models.build_model(
    config.model.to_dict(),
    task='classification',
    input_shape=input_shape,
    num_outputs=num_outputs,
    **labels,
  )
  return trees.num_entries(model.weights_spec())


@pytest.mark.parametrize(
  ('variant', 'input_shape', 'num_outputs', 'count'),
  [
    ('mnist', (28, 28, 1), 10, 101_770),
    ('cifar10', (32, 32, 3), 10, 2_236_682),
    ('synthetic', (150,), 2, 151),
  ],
)
def test_networks_of_planted_groups(variant, input_shape, num_outputs, count):
  config = planted_groups.get_config(variant)
  assert _num_parameters(config, input_shape, num_outputs) == count


def test_networks_of_natural_clients():
  emnist = natural_clients.get_config('emnist')
  assert _num_parameters(emnist, (28, 28, 1), 62) == 11_199_486
  posts = natural_clients.get_config('stack_overflow')
  labels = {'input_dtype': tf.int32, 'label_shape': (20,)}
  assert _num_parameters(posts, (20,), 10_004, **labels) == 5_731_092


@pytest.mark.parametrize(('variant', 'num_test'), [('', 5000), ('_80_20', 0)])
def test_synthetic_clients(variant, num_test):
  config = planted_groups.get_config(f'synthetic{variant}').dataset
  source = sources.create(
    config.source.name, config.source.options.to_dict(), config.seed
  )
  assert source.features().x_shape == (150,)
  assert source.native_source_names() == tuple(
    f'component_{s}' for s in range(planted_groups.num_groups('synthetic'))
  )
  tests = [b.stop - b.start for b in source.blocks() if b.part == 'test']
  assert sum(tests) == 300 * num_test


def test_stack_overflow_takes_posts_of_twenty_words(tmp_path):
  values = natural_clients.get_config('stack_overflow').dataset.to_dict()
  parsed = config_lib.from_dict(options.DatasetConfig, values)
  raw_sources.write_stack_overflow(tmp_path)
  words = '\n'.join(str(i) for i in range(10_000))
  (tmp_path / 'vocabulary.txt').write_text(words)
  chosen = {**parsed.source.options, 'folder': str(tmp_path)}
  features = sources.create(parsed.source.name, chosen, 0).features()
  assert (features.x_shape, features.y_shape) == ((20,), (20,))
  assert features.num_classes == 10_004
