import tracemalloc

import numpy as np
import pytest

from pipelines import build_dataset
from pipelines.sources import windows
from tests.testing import raw_data, raw_sources
from tff_algos.data import dataset as dataset_lib


def _find(clients, times, length=2, stride=1, max_gap=None):
  found = windows.find(
    np.array(clients), np.array(times, float), length, stride, max_gap
  )
  return found, [found.rows(i).tolist() for i in range(len(found))]


def test_rows_of_each_client_in_the_order_of_time():
  found, rows = _find(list('abaabb'), [3, 0, 1, 2, 5, 4])
  assert rows == [[2, 3], [3, 0], [1, 5], [5, 4]]
  assert found.num_unused == 0
  assert len(found.lost) == 0


@pytest.mark.parametrize(
  ('stride', 'expected', 'num_unused'),
  [(1, [[0, 1, 2], [1, 2, 3], [2, 3, 4]], 0), (2, [[0, 1, 2], [2, 3, 4]], 0)]
  + [(3, [[0, 1, 2]], 2), (4, [[0, 1, 2]], 2)],
)
def test_stride(stride, expected, num_unused):
  found, rows = _find(list('aaaaa'), range(5), 3, stride)
  assert rows == expected
  assert found.num_unused == num_unused


def test_no_window_spans_a_gap():
  found, rows = _find(list('aaaaa'), [0, 1, 2.5, 3.5, 6], max_gap=1)
  assert rows == [[0, 1], [2, 3]]
  assert found.num_unused == 1


def test_rows_of_one_time_keep_their_order():
  _, rows = _find(list('aaa'), [1, 0, 0])
  assert rows == [[1, 2], [2, 0]]


def test_rows_without_client_or_time_are_lost():
  found, rows = _find(['a', '', 'a', 'a'], [0, 1, np.nan, 2])
  assert rows == [[0, 3]]
  assert found.lost.tolist() == [1, 2]


def test_clients_with_too_few_rows_have_no_window():
  found, rows = _find(['a', 'b', 'b'], [0, 1, 2], length=3)
  assert rows == []
  assert found.num_unused == 3


def test_memory_does_not_grow_with_the_length_of_windows():
  times = np.arange(10_000.0)
  clients = np.full(len(times), 'a')
  tracemalloc.start()
  try:
    found = windows.find(clients, times, 1000, 1, None)
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert (len(found), found.num_unused) == (9_001, 0)
  assert peak < 50 * times.nbytes


def test_dataset_of_windows(tmp_path):
  """Standardized windows `[length, features]`, each of one client."""
  options = raw_sources.write_windows(tmp_path)
  config = raw_data.digits_config(
    source={'name': 'table', 'options': options},
    distributions={},
    partition={'law': 'natural'},
    sizes={},
    splits={'held_out_fraction': 0.0},
    num_shards=1,
  )
  result = build_dataset.build(config, tmp_path / 'dataset')
  assert result.manifest['source_facts'] == {
    'num_windows': {'train': 6},
    'num_rows_in_no_window': {'train': 0},
  }
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    fitted = dataset.feature_spec.fitted['v']
    stored = dataset.examples('b', 'train')
    assert stored.x.shape == (3, 2, 1)
    values = stored.x[:, :, 0] * fitted['variance'] ** 0.5 + fitted['mean']
    np.testing.assert_allclose(
      np.sort(7 * values, axis=0), [[1, 3], [3, 5], [5, 7]], rtol=1e-5
    )


def test_no_rows():
  assert _find(np.empty(0, str), [])[1] == []
