import errno
import json
import os
from unittest import mock

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing import util

from pipelines.engines import runner
from pipelines.publishing import staging as staging_lib
from pipelines.steps import pieces, write
from tests.testing import full_disk, raw_data
from tff_algos.core import errors
from tff_algos.data import schema as schema_lib

_SCHEMA = schema_lib.Schema(
  x_dtype='float32',
  x_shape=(2,),
  x_scale=1.0,
  x_offset=0.0,
  task='classification',
  num_classes=3,
  source_names=('a', 'b'),
)


@pytest.fixture
def writer(tmp_path):
  """Writes 4 clients in 2 shards."""
  with staging_lib.open_staging(tmp_path) as staging:
    yield write.ShardWriter(staging, _SCHEMA, 4, 2, seed=0)


def _piece(position, client, split, source=0):
  """Returns a piece of one example for each entry."""
  position = np.array(position, np.int64)
  n = len(position)
  generator = np.random.default_rng(position)
  return pieces.Piece(
    schema_lib.StoredExamples(
      x=np.stack([position, position], 1).astype(np.float32),
      y=(position % 3).astype(np.int32),
      source=np.full(n, source, np.int32),
      example_id=generator.integers(0, 256, (n, 16)).astype(np.uint8),
    ),
    client=np.array(client, np.int32),
    split=np.array(split, np.int8),
    position=position,
  )


_PIECES = [
  _piece([0, 1, 2], [0, 1, 0], [0, 0, 2]),
  _piece([3, 4], [1, 0], [1, 0]),
  _piece([], [], []),
]


def _facts(writer, name):
  return json.loads((writer.staging.work / name).read_text())


def test_files_and_facts(writer):
  writer.write('clients', 0, pieces.join(_PIECES))
  facts = _facts(writer, 'clients-00000.json')
  assert facts['counts'] == {
    'train': [2, 1],
    'validation': [0, 1],
    'test': [1, 0],
  }
  assert facts['label_histogram']['train'] == [[1, 1, 0], [0, 1, 0]]
  assert sorted(path.name for path in writer.staging.version.iterdir()) == [
    'test-00000-of-00002.array_record',
    'train-00000-of-00002.array_record',
    'validation-00000-of-00002.array_record',
  ]
  assert facts['files'].keys() == {
    path.name for path in writer.staging.version.iterdir()
  }


def test_bytes_do_not_depend_on_the_order_of_pieces(writer):
  writer.write('clients', 0, pieces.join(_PIECES))
  first = raw_data.file_bytes(writer.staging.version)
  # As a block cut in other places would give them, and written twice.
  halves = [pieces.select(_PIECES[0], slice(2, 3)), _PIECES[1]]
  halves.append(pieces.select(_PIECES[0], slice(0, 2)))
  writer.write('clients', 0, pieces.join(halves))
  assert raw_data.file_bytes(writer.staging.version) == first


def test_copies_of_an_example_are_written_in_the_order_of_the_source(writer):
  """Equal images with different labels: their hashes do not order them."""
  piece = _piece([7, 3, 5], [0] * 3, [0] * 3)
  ids = np.zeros((3, 16), np.uint8)
  piece = piece._replace(stored=piece.stored._replace(example_id=ids))
  contents = []
  for order in ([0, 1, 2], [2, 1, 0]):
    writer.write('clients', 0, pieces.select(piece, np.array(order)))
    contents.append(raw_data.file_bytes(writer.staging.version))
  assert contents[0] == contents[1]


def test_shard_without_examples(writer):
  writer.write('clients', 1, _piece([], [], []))
  counts = _facts(writer, 'clients-00001.json')['counts']
  assert counts == {'train': [0, 0], 'validation': [0, 0], 'test': [0, 0]}


def test_held_out(writer):
  writer.write('held_out', 1, _piece([5, 6], [-1, -1], [3, 3], source=1))
  facts = _facts(writer, 'held_out-00001.json')
  assert facts['counts'] == {'held_out': [2]}
  assert list(facts['files']) == ['held_out-00001-of-00002.array_record']


def test_examples_of_a_client_are_shuffled_by_the_seed(writer):
  piece = _piece(range(50), [0] * 50, [0] * 50)
  contents = []
  for seed in (0, 1):
    other = writer._replace(seed=seed)
    other.write('clients', 0, piece)
    contents.append(raw_data.file_bytes(writer.staging.version))
  assert contents[0] != contents[1]


def _write_runs(writer, runs, num_blocks):
  with runner.run_pipeline([]) as pipeline:
    written = (
      pipeline
      | beam.Create(runs)
      | beam.GroupByKey()
      | beam.ParDo(write.WriteShard(writer, num_blocks))
    )
    util.assert_that(
      written, util.equal_to(['clients-0', 'held_out-0', 'held_out-1'])
    )


@pytest.fixture
def runs(writer):
  """What waits in the files of three blocks."""
  return [
    run
    for block, piece in enumerate(_PIECES)
    for run in pieces.save(
      writer.staging,
      block,
      [
        (('clients', 0), piece),
        (('held_out', 0), _piece([7], [-1], [3])),
        (('held_out', 1), _piece([7], [-1], [3], 1)),
      ],
    )
  ]


def test_transform_groups_runs_by_shard(writer, runs):
  _write_runs(writer, runs, num_blocks=3)
  assert _facts(writer, 'clients-00000.json')['counts']['train'] == [2, 1]
  assert _facts(writer, 'held_out-00001.json')['counts']['held_out'] == [3]


def test_run_that_an_engine_loses_is_missed(writer, runs):
  with pytest.raises(
    errors.InfrastructureError, match='runs of 2 blocks, of 3'
  ):
    _write_runs(writer, runs[:-1], num_blocks=3)


def test_full_disk_is_an_error_of_the_disk(writer):
  """On a real limit, which ArrayRecord's C++ meets."""
  piece = _piece(range(50), [0] * 50, [0] * 50)
  # An empty ArrayRecord file takes 128 KiB.
  with (
    full_disk.after(100_000),
    pytest.raises(OSError, match='File too large'),
  ):
    writer.write('clients', 0, piece)
  assert not list(writer.staging.version.iterdir())


def test_an_error_of_the_disk_may_be_retried(writer, monkeypatch):
  text = f'UNKNOWN: write() failed: {os.strerror(errno.EIO)}; writing file'
  monkeypatch.setattr(
    write.array_record_module,
    'ArrayRecordWriter',
    mock.Mock(side_effect=RuntimeError(text)),
  )
  with pytest.raises(OSError) as caught:
    writer.write('clients', 0, _piece([], [], []))
  assert caught.value.errno == errno.EIO
  assert errors.is_of_disk(caught.value)
