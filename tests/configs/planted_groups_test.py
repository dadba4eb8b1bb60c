"""Tests that PPFL's shared configs hold the paper's networks and clients."""

import numpy as np
import pytest
import tensorflow as tf

from configs import base, natural_clients, planted_groups
from configs.cfl import planted_groups as cfl_groups
from configs.ditto import planted_groups as ditto_groups
from configs.fed_avg import planted_groups as fed_avg_groups
from configs.fed_em import planted_groups as fed_em_groups
from configs.fine_tuning import planted_groups as fine_tuning_groups
from configs.partial_fed_avg import planted_groups as partial_groups
from configs.pfedme import planted_groups as pfedme_groups
from configs.ppfl import natural_clients as ppfl_clients
from configs.ppfl import planted_groups as ppfl_groups
from pipelines import options
from pipelines.partitions import division, groups
from pipelines.sources import registry as sources
from tests.testing import raw_sources, toys
from tff_algos.algorithms.ppfl import mixing
from tff_algos.core import config as config_lib
from tff_algos.numerics import trees

_METHODS = {
  'cfl': cfl_groups,
  'ditto': ditto_groups,
  'fed_avg': fed_avg_groups,
  'fed_em': fed_em_groups,
  'fine_tuning': fine_tuning_groups,
  'partial_fed_avg': partial_groups,
  'pfedme': pfedme_groups,
  'ppfl': ppfl_groups,
}
_POSTS = {'input_dtype': tf.int32, 'label_shape': (20,)}


def _build_model(config, input_shape, num_outputs, **labels):
  return toys.build(config.model.to_dict(), input_shape, num_outputs, **labels)


def _num_parameters(*arguments, **labels):
  return trees.num_entries(_build_model(*arguments, **labels).weights_spec())


@pytest.mark.parametrize(
  ('variant', 'input_shape', 'num_outputs', 'count'),
  [
    ('mnist', (28, 28, 1), 10, 101_770),
    ('cifar10', (32, 32, 3), 10, 2_236_682),
    ('synthetic', (150,), 2, 151),
  ],
)
def test_networks_of_planted_groups(variant, input_shape, num_outputs, count):
  config = planted_groups.get_config('fed_avg', variant)
  assert _num_parameters(config, input_shape, num_outputs) == count


def test_networks_of_natural_clients():
  emnist = natural_clients.get_config('fed_avg', 'emnist')
  assert _num_parameters(emnist, (28, 28, 1), 62) == 11_199_486
  posts = natural_clients.get_config('fed_avg', 'stack_overflow')
  assert _num_parameters(posts, (20,), 10_004, **_POSTS) == 5_731_092


@pytest.mark.parametrize(
  ('configs', 'variant', 'input_shape', 'num_outputs', 'count'),
  [
    (ppfl_groups, 'mnist', (28, 28, 1), 10, 407_080),
    (ppfl_groups, 'cifar10', (32, 32, 3), 10, 2_262_302),
    (ppfl_groups, 'synthetic', (150,), 2, 453),
    (ppfl_clients, 'emnist', (28, 28, 1), 62, 11_485_740),
    (ppfl_clients, 'stack_overflow', (20,), 10_004, 18_536_212),
  ],
)
def test_shared_and_canonical_weights_of_ppfl(
  configs, variant, input_shape, num_outputs, count
):
  config = configs.get_config(variant)
  labels = _POSTS if variant == 'stack_overflow' else {}
  options = config.algorithm
  mixture = mixing.build(
    _build_model(config, input_shape, num_outputs, **labels),
    options.num_clusters,
    options.canonical,
    options.mixing,
  )
  assert mixture.num_parameters == count


def test_clients_of_a_group_have_the_same_digits():
  config = planted_groups.get_config('fed_avg', 'mnist').dataset
  divided = groups.divide(
    groups.Options(**config.partition.options.to_dict()),
    division.Request(
      counts=np.full(10, 7000),
      num_clients=config.partition.num_clients,
      num_unseen=0,
      seed=config.seed,
    ),
  )
  sizes = np.bincount(divided.clusters)
  np.testing.assert_array_equal(sizes, [25] * 4)


def test_methods_of_ppfl():
  printed = ppfl_groups.get_config('synthetic').algorithm.to_dict()
  changed = {}
  for method in ppfl_groups.METHODS[1:]:
    values = ppfl_groups.get_config(f'synthetic_{method}').algorithm.to_dict()
    changed[method] = {key for key in printed if values[key] != printed[key]}
  assert changed == {
    'ppfl2': {'mixing'},
    'probabilities': {'mixing'},
    'released': {'schedule', 'weighting', 'membership', 'laplacian'},
    'random_block': {'schedule'},
  }
  assert printed['membership']['learning_rate'] == 0.9


@pytest.mark.parametrize('method', _METHODS)
@pytest.mark.parametrize('data', ['cifar10', 'synthetic_80_20'])
def test_falling_variants_are_the_others_with_rates_that_fall(method, data):
  get_config = _METHODS[method].get_config
  plain, falling = (
    get_config(f'{data}{part}').to_dict() for part in ('', '_falling')
  )
  assert falling['lr_schedule']['after_rounds'] == (100, 150)
  assert plain['lr_schedule']['after_rounds'] == ()
  changed = {key for key in plain if falling[key] != plain[key]}
  assert changed == {'name', 'lr_schedule'}


def test_rates_that_fall_change_no_algorithm():
  assert ppfl_groups.get_config('mnist_falling_ppfl2').algorithm == (
    ppfl_groups.get_config('mnist_ppfl2').algorithm
  )
  local = partial_groups.get_config('mnist_falling_local').algorithm
  assert local == partial_groups.get_config('mnist_local').algorithm


def test_methods_of_the_baselines():
  lg, local = (
    partial_groups.get_config(variant).algorithm
    for variant in ('mnist', 'mnist_local')
  )
  assert lg.private == ('all_but_last_layer',)
  assert local.private == ('all',)
  assert local.local_training.optimizer.learning_rate == 0.03
  mean = pfedme_groups.get_config('cifar10').algorithm
  assert mean.averaged == 'personalized'
  assert mean.local_training.client_learning_rate == 0
  tuned = fine_tuning_groups.get_config('cifar10').algorithm
  assert tuned.local_training.num_local_epochs == 1
  assert tuned.personal_training.num_local_epochs == 5


def test_variants_are_named_in_the_refusal():
  assert base.part('b_y', 'ab', 'xyz') == ('b', 'y')
  assert base.part('a', 'ab', 'xyz') == ('a', 'x')
  with pytest.raises(ValueError, match="of a, b, a_y, b_y, got 'a_x'"):
    base.part('a_x', 'ab', 'xy')


@pytest.mark.parametrize(('variant', 'num_test'), [('', 5000), ('_80_20', 0)])
def test_synthetic_clients(variant, num_test):
  values = planted_groups.get_config('fed_avg', f'synthetic{variant}').dataset
  config = config_lib.from_dict(options.DatasetConfig, values.to_dict())
  source = sources.create(
    config.source.name, config.source.options, config.seed
  )
  assert source.features().x_shape == (150,)
  assert source.native_source_names() == tuple(
    f'component_{s}' for s in range(planted_groups.num_groups('synthetic'))
  )
  tests = [b.stop - b.start for b in source.blocks() if b.part == 'test']
  assert sum(tests) == 300 * num_test


def test_stack_overflow_takes_posts_of_twenty_words(tmp_path):
  values = natural_clients.get_config(
    'fed_avg', 'stack_overflow'
  ).dataset.to_dict()
  parsed = config_lib.from_dict(options.DatasetConfig, values)
  raw_sources.write_stack_overflow(tmp_path)
  words = '\n'.join(str(i) for i in range(10_000))
  (tmp_path / 'vocabulary.txt').write_text(words)
  chosen = {**parsed.source.options, 'folder': str(tmp_path)}
  features = sources.create(parsed.source.name, chosen, 0).features()
  assert (features.x_shape, features.y_shape) == ((20,), (20,))
  assert features.num_classes == 10_004
