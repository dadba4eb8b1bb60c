"""Tests of the names of TFF that we use; the TFF runtime's tests run them."""

from collections import OrderedDict

import pytest
import tensorflow as tf

from tff_algos.core import tff_compat

_SPECS = OrderedDict(
  kernel=tf.TensorSpec([2, 3], tf.float32),
  rows=tf.TensorSpec([None], tf.int32),
)


def test_types_and_specs_are_two_spellings_of_the_same():
  type_ = tff_compat.to_type(_SPECS)
  assert str(type_) == '<kernel=float32[2,3],rows=int32[?]>'
  assert tff_compat.to_specs(type_) == _SPECS


def test_placements():
  type_ = tff_compat.to_type(tf.TensorSpec([], tf.bool))
  assert str(tff_compat.at_server(type_)) == 'bool@SERVER'
  assert str(tff_compat.at_clients(type_)) == '{bool}@CLIENTS'


def test_a_computation_outside_a_runtime_is_refused_without_a_process():
  add_one = tff_compat.tensorflow_computation(
    lambda x: x + 1, tff_compat.to_type(tf.TensorSpec([], tf.int32))
  )
  with pytest.raises(
    RuntimeError, match='called outside a runtime; .*TffRuntime'
  ):
    add_one(1)
