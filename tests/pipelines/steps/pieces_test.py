import numpy as np
import pytest

from pipelines.publishing import staging as staging_lib
from pipelines.steps import pieces
from tff_algos.core import errors
from tff_algos.data import schema as schema_lib


@pytest.fixture
def staging(tmp_path):
  """A place to work in."""
  with staging_lib.open_staging(tmp_path) as staging:
    yield staging


def _piece(positions):
  position = np.array(positions, np.int64)
  n = len(position)
  return pieces.Piece(
    schema_lib.StoredExamples(
      x=np.stack([position, -position], 1).astype(np.float32),
      y=(position % 3).astype(np.int32),
      source=np.full(n, 1, np.int32),
      example_id=np.repeat(position[:, None], 16, 1).astype(np.uint8),
    ),
    client=(position + 5).astype(np.int32),
    split=(position % 2).astype(np.int8),
    position=position,
  )


def _assert_equal(piece, other):
  for column, expected in zip(
    (*piece.stored, *piece[1:]), (*other.stored, *other[1:]), strict=True
  ):
    assert column.dtype == expected.dtype
    np.testing.assert_array_equal(column, expected)


def test_pieces_of_several_blocks_come_together(staging):
  runs = {}
  for block, keyed in {
    0: [(('clients', 0), _piece([0, 2])), (('clients', 1), _piece([1]))],
    3: [(('clients', 1), _piece([])), (('clients', 0), _piece([7]))],
  }.items():
    for key, run in pieces.save(staging, block, keyed):
      runs.setdefault(key, []).append(run)
  _assert_equal(
    pieces.load(staging, reversed(runs['clients', 0])), _piece([0, 2, 7])
  )
  _assert_equal(pieces.load(staging, runs['clients', 1]), _piece([1]))


def test_pieces_of_one_file_are_one_run(staging):
  keyed = [
    (('clients', 0), _piece([4])),
    (('clients', 1), _piece([5])),
    (('clients', 0), _piece([6])),
  ]
  runs = dict(pieces.save(staging, 0, iter(keyed)))
  assert runs == {('clients', 0): (0, 0, 2), ('clients', 1): (0, 2, 3)}
  _assert_equal(pieces.load(staging, [runs['clients', 0]]), _piece([4, 6]))


def test_what_an_engine_does_twice_counts_once(staging):
  keyed = [(('clients', 0), _piece([4, 5]))]
  runs = [run for _ in range(2) for _, run in pieces.save(staging, 0, keyed)]
  found = pieces.collect(iter(runs), 1)
  _assert_equal(pieces.load(staging, found), _piece([4, 5]))


@pytest.mark.parametrize(
  ('runs', 'words'),
  [
    ([(0, 2, 4), (2, 0, 1)], 'got 2 runs of 2 blocks, of 3'),
    ([(0, 2, 4), (1, 2, 3), (1, 2, 4), (2, 0, 1)], 'got 4 runs of 3 blocks'),
    ([(0, 2, 4), (1, 2, 3), (2, 0, 1), (3, 0, 1)], 'got 4 runs of 4 blocks'),
    ([], 'got 0 runs'),
  ],
)
def test_engine_that_loses_or_mixes_up_runs_is_found_out(runs, words):
  with pytest.raises(errors.InfrastructureError, match=words):
    pieces.collect((pieces.Run(*run) for run in runs), 3)


def test_piece_of_nothing(staging):
  ((_, run),) = pieces.save(staging, 0, [(('held_out', 0), _piece([]))])
  loaded = pieces.load(staging, [run])
  assert loaded.stored.x.shape == (0, 2)
  _assert_equal(loaded, _piece([]))


def test_select_by_mask_and_by_index():
  piece = _piece([3, 4, 5])
  _assert_equal(pieces.select(piece, piece.position > 3), _piece([4, 5]))
  _assert_equal(pieces.select(piece, np.array([2, 0])), _piece([5, 3]))
