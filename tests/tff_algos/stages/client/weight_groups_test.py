"""Tests of shared and private weights."""

from collections import OrderedDict

import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.core import errors
from tff_algos.core import model as model_lib
from tff_algos.stages.client import weight_groups

_NAMES = (
  'block_0/dense/kernel',
  'block_0/dense/bias',
  'block_0/adapter/kernel',
  'block_01/dense/kernel',
  'head/kernel',
  'head/bias',
)
_MODEL = model_lib.Model(
  'blocks',
  model_lib.CLASSIFICATION,
  (2,),
  2,
  lambda seed: OrderedDict((name, tf.zeros([2])) for name in _NAMES),
  lambda weights, x: x,
  vectorizes=True,
)


@pytest.mark.parametrize(
  ('wanted', 'chosen'),
  [
    ((), []),
    (('all',), [0, 1, 2, 3, 4, 5]),
    (('last_layer',), [4, 5]),
    (('all_but_last_layer',), [0, 1, 2, 3]),
    (('head', 'block_0/dense'), [0, 1, 4, 5]),
    # A block, and not what only begins alike.
    (('block_0',), [0, 1, 2]),
    (('head/bias', 'block_0/adapter'), [2, 5]),
    (('last_layer', 'head/bias'), [4, 5]),
  ],
)
def test_names_come_in_the_models_order(wanted, chosen):
  names = weight_groups.weight_names(_MODEL, wanted)
  assert names == tuple(_NAMES[i] for i in chosen)


def test_of_one_layer_the_body_is_nothing():
  linear = toys.linear(3)
  assert weight_groups.weight_names(linear, ['all_but_last_layer']) == ()
  assert weight_groups.weight_names(linear, ['last_layer']) == ('kernel',)


@pytest.mark.parametrize('unknown', ['block', 'head/', 'tail'])
def test_unknown_name_is_refused_with_those_that_there_are(unknown):
  text = f"{unknown!r} is neither a weight nor a layer of model 'blocks'.*bias"
  with pytest.raises(errors.ConfigError, match=text):
    weight_groups.weight_names(_MODEL, ['head', unknown])


def test_parts_join_to_the_whole():
  groups = weight_groups.WeightGroups(_MODEL, ['block_0/adapter', 'head/bias'])
  weights = OrderedDict((name, i) for i, name in enumerate(_NAMES))
  parts = groups.split(weights)
  assert list(parts.private.values()) == [2, 5]
  assert list(parts.shared.values()) == [0, 1, 3, 4]
  assert list(groups.join(*parts).items()) == list(weights.items())
  assert groups.num_shared == 8
  assert list(groups.spec.private) == [_NAMES[2], _NAMES[5]]
