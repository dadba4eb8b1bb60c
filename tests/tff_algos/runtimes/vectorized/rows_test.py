"""Examples of clients, concatenated; splits that stay on a device."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import running_sum, toys
from tff_algos.core import errors
from tff_algos.data import schema
from tff_algos.runtimes.vectorized import rows as rows_lib

_SIZES = (3, 0, 5, 1, 0)


@pytest.fixture(name='source')
def _source() -> toys.ToySource:
  values = iter(range(1, 100))
  return running_sum.source(
    *[[float(next(values)) for _ in range(size)] for size in _SIZES]
  )


def _examples(source):
  return [source.examples(i) for i in range(len(_SIZES))]


def test_rows_lie_one_after_the_other(source):
  rows, spans = rows_lib.concatenate(_examples(source))
  np.testing.assert_array_equal(rows.x[:, 0], [*range(1, 10), 0])
  np.testing.assert_array_equal(spans.start, [0, 9, 3, 8, 9])
  np.testing.assert_array_equal(spans.size, _SIZES)
  assert spans.start.dtype == spans.size.dtype == np.int32


def test_clients_without_any_examples_have_a_row_to_point_at(source):
  rows, spans = rows_lib.concatenate([source.examples(1)])
  assert rows.x.shape[0] == 1
  np.testing.assert_array_equal((spans.start, spans.size), [[0], [0]])


def test_resident_rows_are_read_once_and_forgotten_with_their_source():
  source, read = running_sum.source(*([1.0] * size for size in _SIZES)), []
  source.stream = lambda stream=source.stream: (
    read.append(len(one.y)) or one for one in stream()
  )
  resident = rows_lib.ResidentRows()
  rows, spans = resident.load(source, np.array([2, 0]), 'CPU:0')
  again, _ = resident.load(source, np.array([3]), 'CPU:0')
  assert again.x is rows.x
  assert read == list(_SIZES)
  np.testing.assert_array_equal(spans.start, [3, 0])
  np.testing.assert_array_equal(spans.size, [5, 3])
  del source.stream, source
  gc.collect()
  assert not resident._rows and not resident._spans


def test_splits_read_first_are_forgotten_until_the_others_fit():
  """8 bytes an example, and as many of a row of zeros."""
  sources = [running_sum.source([1.0] * 9) for _ in range(3)]
  resident = rows_lib.ResidentRows()
  for source in sources:
    resident.load(source, np.array([0]), 'CPU:0')
  each = 8 * 10
  resident.make_room(sources[0], 2 * each)
  assert [*resident._rows] == sources
  resident.make_room(sources[0], 2 * each - 1)
  assert [*resident._rows] == [sources[0], sources[2]]
  resident.make_room(None, each)
  assert [*resident._rows] == [*resident._spans] == [sources[2]]


def test_a_split_is_kept_if_a_round_reads_a_twentieth_of_it():
  source = running_sum.source(*[[1.0]] * 40)
  for num_clients, keeps in ((1, False), (2, True)):
    call = running_sum.phase_call(range(num_clients), np.zeros(num_clients))
    cohort = running_sum.cohort(call, source)
    assert rows_lib.worth_keeping(cohort) == keeps


def test_clients_of_another_kind_are_refused():
  one = schema.Examples(np.ones([2, 3], np.float32), np.ones(2, np.int32), None)
  other = one._replace(y=np.float32([0.5, 0.9]))
  with pytest.raises(errors.DataError, match='y of a client is float32'):
    rows_lib.concatenate([one, other])


def test_tokens_stay_integers(source):
  tokens = np.array([[2**24 + 1], [2], [3]], np.int32)
  one = source.examples(0)._replace(x=tokens)
  rows, _ = rows_lib.concatenate([one])
  np.testing.assert_array_equal(rows.x[:3], tokens)
  assert rows.x.dtype == tf.int32
