"""Tests of arithmetic on structures, against NumPy leaf by leaf."""

from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.numerics import trees

_KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
_BIAS = np.array([0.5, -4], np.float32)


def _tree(factor=1.0):
  return OrderedDict(
    kernel=tf.constant(factor * _KERNEL), inner=(tf.constant(factor * _BIAS),)
  )


def _check(structure, kernel, bias):
  tf.nest.assert_same_structure(structure, _tree())
  np.testing.assert_array_equal(structure['kernel'], kernel)
  np.testing.assert_array_equal(structure['inner'][0], bias)


def test_add_subtract_and_scale():
  _check(trees.add(_tree(), _tree(2)), 3 * _KERNEL, 3 * _BIAS)
  _check(trees.subtract(_tree(), _tree(3)), -2 * _KERNEL, -2 * _BIAS)
  _check(trees.scale(_tree(), -0.25), -0.25 * _KERNEL, -0.25 * _BIAS)
  _check(trees.scale(_tree(), tf.constant(2.0)), 2 * _KERNEL, 2 * _BIAS)


def test_interpolate_goes_a_share_of_the_way_and_beyond():
  for share in (0, 0.25, 1, 1.5):
    factor = 1 - share + 3 * share
    found = trees.interpolate(_tree(), _tree(3), share)
    _check(found, factor * _KERNEL, factor * _BIAS)
  # The end is not touched by what a broken start has.
  broken = tf.nest.map_structure(lambda leaf: leaf * np.nan, _tree())
  _check(trees.interpolate(broken, _tree(), 1.0), _KERNEL, _BIAS)


def test_zeros_are_of_the_types():
  spec = {'a': tf.TensorSpec([2], tf.int32), 'b': (tf.TensorSpec([]),)}
  zeros = trees.zeros(spec)
  tf.nest.assert_same_structure(zeros, spec)
  assert zeros['a'].dtype == tf.int32
  assert zeros['a'].numpy().tolist() == [0, 0]
  assert float(zeros['b'][0]) == 0


def test_zeros_like_keeps_shapes_and_dtypes():
  zeros = trees.zeros_like((tf.constant([1, 2]), tf.ones([2, 0])))
  assert zeros[0].dtype == tf.int32
  np.testing.assert_array_equal(zeros[0], [0, 0])
  assert zeros[1].shape == (2, 0)


def test_squared_norm_sums_over_all_leaves():
  expected = np.sum(_KERNEL**2) + np.sum(_BIAS**2)
  np.testing.assert_allclose(trees.squared_norm(_tree()), expected)


def test_inner_product_sums_over_all_leaves():
  expected = 3 * (np.sum(_KERNEL**2) + np.sum(_BIAS**2))
  found = trees.inner_product(_tree(), trees.scale(_tree(), 3.0))
  np.testing.assert_allclose(found, expected)


def test_without_leaves_norms_and_products_are_zero():
  for found in (trees.squared_norm({}), trees.inner_product({}, {})):
    assert (float(found), found.dtype) == (0.0, tf.float32)


@pytest.mark.parametrize('condition', [True, False])
def test_select_takes_one_structure_whole_and_nothing_of_the_other(condition):
  poison = tf.nest.map_structure(
    lambda leaf: tf.fill(leaf.shape, float('nan')), _tree()
  )
  arguments = (_tree(), poison) if condition else (poison, _tree())
  _check(trees.select(tf.constant(condition), *arguments), _KERNEL, _BIAS)


def test_scale_rows_scales_each_row_of_every_leaf():
  scaled = trees.scale_rows(_tree(), tf.constant([2.0, -1]))
  _check(scaled, _KERNEL * [[2], [-1]], _BIAS * [2, -1])


def test_select_rows_takes_each_row_from_its_side():
  yes = (tf.ones([3, 2, 2]), tf.constant([1, 2, 3]))
  no = (tf.fill([3, 2, 2], float('nan')), tf.constant([-1, -2, -3]))
  chosen = trees.select_rows(tf.constant([True, False, True]), yes, no)
  assert np.isfinite(chosen[0].numpy()).all(axis=(1, 2)).tolist() == [
    True,
    False,
    True,
  ]
  np.testing.assert_array_equal(chosen[1], [1, -2, 3])


@pytest.mark.parametrize('poison', [np.nan, np.inf, -np.inf])
def test_finite_rows_sees_one_bad_entry_in_any_leaf(poison):
  wide = np.ones([3, 2, 2], np.float32)
  narrow = np.ones(3, np.float32)
  stack = tuple(map(tf.constant, ([1, 2, 3], wide, narrow)))
  assert trees.finite_rows(stack, 3).numpy().tolist() == [True] * 3
  wide[0, 1, 0], narrow[2] = poison, -poison
  stack = (tf.constant([1, 2, 3]), tf.constant(wide), tf.constant(narrow))
  assert trees.finite_rows(stack, 3).numpy().tolist() == [False, True, False]


def test_finite_rows_of_integers_or_of_nothing_are_all():
  assert trees.finite_rows(tf.constant([1, 2]), 2).numpy().all()
  assert trees.finite_rows((), 4).numpy().tolist() == [True] * 4


def test_mix_is_the_weighted_sum_of_rows():
  generator = np.random.default_rng(1)
  stacked = {
    'a': generator.normal(size=(3, 2, 4)).astype(np.float32),
    'b': generator.normal(size=3).astype(np.float32),
  }
  weights = np.array([0.5, -1, 2], np.float32)
  mixed = trees.mix(tf.constant(weights), stacked)
  for name, leaf in stacked.items():
    expected = sum(w * row for w, row in zip(weights, leaf, strict=True))
    np.testing.assert_allclose(mixed[name], expected, rtol=1e-6)


def test_mix_with_several_sums_is_each_sum_alone():
  stacked = {'a': tf.reshape(tf.range(12.0), [3, 4])}
  weights = tf.constant([[1.0, 0, 2], [0.5, 0.5, 0]])
  mixed = trees.mix(weights, stacked)['a']
  for row in range(2):
    np.testing.assert_allclose(
      mixed[row], trees.mix(weights[row], stacked)['a'], rtol=1e-6
    )


def test_take_returns_a_row_of_every_leaf():
  stacked = (tf.reshape(tf.range(6), [3, 2]), tf.constant([7.0, 8, 9]))
  row = trees.take(stacked, tf.constant(2))
  np.testing.assert_array_equal(row[0], [4, 5])
  assert float(row[1]) == 9
  rows = trees.take(stacked, tf.constant([2, 0]))
  np.testing.assert_array_equal(rows[0], [[4, 5], [0, 1]])
  np.testing.assert_array_equal(rows[1], [9, 7])


def test_num_entries_counts_scalars_of_tensors_and_specs():
  assert trees.num_entries(_tree()) == 8
  specs = (tf.TensorSpec([3, 4]), tf.TensorSpec([], tf.int32))
  assert trees.num_entries(specs) == 13
  assert trees.num_entries(()) == 0


def test_bytes_are_those_of_arrays_and_an_unknown_length_is_1():
  specs = {
    'a': tf.TensorSpec([3, None, 2], tf.float64),
    'b': (tf.TensorSpec([], tf.bool), tf.TensorSpec([5], tf.int32)),
  }
  assert trees.num_bytes(specs) == 6 * 8 + 1 + 5 * 4


def test_flatten_puts_the_leaves_one_after_the_other():
  vector = trees.flatten(_tree())
  flat = [leaf.numpy().ravel() for leaf in tf.nest.flatten(_tree())]
  np.testing.assert_array_equal(vector, np.concatenate(flat))
  _check(trees.unflatten(3 * vector, _tree()), 3 * _KERNEL, 3 * _BIAS)
