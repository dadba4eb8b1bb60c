"""Stacks of small models with two leaves, and the same as flat rows."""

from collections import OrderedDict

import numpy as np
import tensorflow as tf

NUM_WEIGHTS = 10


def stack(rows):
  """Returns flat rows `[..., 10]` as a structure of two leaves, float32."""
  rows = tf.constant(rows, tf.float32)
  shape = tf.shape(rows)[:-1]
  return OrderedDict(
    kernel=tf.reshape(rows[..., :6], tf.concat([shape, [3, 2]], 0)),
    bias=rows[..., 6:],
  )


def flat(structure, num_axes=0):
  """Returns a structure as flat rows, float64; `num_axes` are stacked ones."""
  leaves = [np.asarray(leaf, np.float64) for leaf in structure.values()]
  return np.concatenate(
    [leaf.reshape(*leaf.shape[:num_axes], -1) for leaf in leaves], axis=-1
  )


def normal_rows(num_rows, seed=0, scale=1.0):
  """Returns normal rows `[num_rows, 10]`, exact in float32."""
  rows = scale * np.random.default_rng(seed).normal(size=(num_rows, 10))
  return rows.astype(np.float32).astype(np.float64)
