"""Tests of the guard against `==` between tensors."""

import pytest
import tensorflow as tf

from tests.testing import programs

_STAGE = programs.ROOT / 'tff_algos' / 'stages' / 'a_stage.py'


def _compare(expression, file):
  names = {'one': tf.constant([1, 2]), 'two': tf.constant([1, 3])}
  return eval(compile(expression, str(file), 'eval'), names)


@pytest.mark.parametrize(
  'expression', ['one == two', 'one != two', 'one == 1', 'two in [one]']
)
def test_tensors_are_not_compared_by_operators_in_the_package(expression):
  with pytest.raises(TypeError, match='a_stage.py compares tensors by __'):
    _compare(expression, _STAGE)
  with tf.Graph().as_default():
    assert _compare(expression, 'elsewhere.py') == ('!=' in expression)


def test_outside_the_package_nothing_changes():
  assert _compare('one == two', 'elsewhere.py').numpy().tolist() == [
    True,
    False,
  ]
  assert _compare('one.shape == two.shape', _STAGE)
  assert _compare('one is one', _STAGE)
