"""A span of rows is what padded client data are."""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.rounds import client_rows

_SIZES = (3, 0, 5, 1)


@pytest.mark.parametrize('capacity', [5, 9])
def test_a_span_is_the_padded_client(capacity):
  x = np.arange(1.0, 11, dtype=np.float32)[:, np.newaxis]
  x[-1] = 0
  rows = client_rows.Rows(tf.constant(x), tf.constant(2 * x[:, 0]))
  stops = np.cumsum(_SIZES)
  for size, stop in zip(_SIZES, stops, strict=True):
    start = stop - size if size else 9
    own = x[start : start + size]
    span = client_rows.Span(start, size)
    data = client_rows.SpanData(rows, span, tf.range(capacity))
    np.testing.assert_array_equal(data.mask, np.arange(capacity) < size)
    np.testing.assert_array_equal(data.x[:size], own)
    np.testing.assert_array_equal(data.y[:size], 2 * own[:, 0])
    # Padding repeats its own last row, so it brings no value of others.
    padding = data.x[size:, 0].numpy()
    assert set(padding) <= {own[-1, 0] if size else 0.0}
    positions = [p for p in (2, 0) if p < size]
    batch = data.take(tf.constant(positions, tf.int32), tf.ones(len(positions)))
    np.testing.assert_array_equal(batch.x, own[positions])
    np.testing.assert_array_equal(batch.y, 2 * own[positions, 0])
