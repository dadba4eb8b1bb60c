"""Tests that a client knows its pull, however it is sent."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import toys
from tff_algos.algorithms.fed_soft import center_download

_MODELS = {'kernel': np.array([[[1.0], [0]], [[3.0], [4]]], 'f')}
_IMPORTANCE = np.array([[0.25, 0.75], [1, 0]], 'f')
_SLOTS = np.array([[2, 0], [1, 1]], 'f')


@pytest.mark.parametrize('download', center_download.DOWNLOADS)
def test_the_pull_is_that_of_all_centers(download):
  made = center_download.inputs(download, _MODELS, _IMPORTANCE, _SLOTS)
  np.testing.assert_array_equal(made.cluster_weights, _SLOTS)
  for row, center in enumerate([[[2.5], [3]], [[1], [0]]]):
    one = tf.nest.map_structure(lambda leaf, row=row: leaf[row], made)
    pull = one.joint_pull(_MODELS if download == 'all_centers' else ())
    np.testing.assert_array_equal(pull.center['kernel'], center)
    assert float(pull.strength) == 1


@pytest.mark.parametrize('download', center_download.DOWNLOADS)
def test_inputs_are_as_specified(download):
  spec = center_download.input_spec(download, toys.linear(2), 2)
  made = center_download.inputs(download, _MODELS, _IMPORTANCE, _SLOTS)
  tf.nest.assert_same_structure(spec, made)
  tf.nest.map_structure(
    lambda one, leaf: one.shape.assert_is_compatible_with(leaf.shape[1:]),
    spec,
    made,
  )
