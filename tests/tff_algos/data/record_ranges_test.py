import contextlib
import random

import numpy as np
import pytest
from array_record.python import array_record_module

from tff_algos.core import errors
from tff_algos.data import record_ranges

_RANDOM_ACCESS = 'readahead_buffer_size:0,max_parallelism:0'


def _write(path, sizes, options='group_size:1'):
  source = random.Random(0)
  records = [source.randbytes(size) for size in sizes]
  writer = array_record_module.ArrayRecordWriter(str(path), options)
  for record in records:
    writer.write(record)
  writer.close()
  return records, path.read_bytes()


@pytest.mark.parametrize(
  'sizes',
  [
    *([], [0], [10, 200_000, 0, 65_000, 65_536]),
    # The footer begins before the last two blocks.
    [random.Random(0).randrange(400) for _ in range(3000)],
  ],
)
def test_the_range_of_a_record_is_what_its_reader_needs(tmp_path, sizes):
  records, content = _write(tmp_path / 'file', sizes)
  calls = []

  def read(start, stop):
    calls.append((start, stop))
    return content[start:stop]

  size = len(content)
  bounds = record_ranges.find(read, size)
  assert len(bounds) == len(sizes) + 1
  assert len(calls) == (1 if len(sizes) < 1000 else 2)
  chosen = [*range(len(records))][:: max(1, len(records) // 5)]
  for index in chosen:
    sparse = bytearray(size)
    for start, stop in (bounds[index : index + 2], (bounds[-1], size)):
      sparse[start:stop] = content[start:stop]
    (tmp_path / 'sparse').write_bytes(sparse)
    reader = array_record_module.ArrayRecordReader(
      str(tmp_path / 'sparse'), _RANDOM_ACCESS
    )
    assert reader.read([index]) == [records[index]]
    reader.close()
  assert np.all(np.diff(bounds) > 0)


def test_another_file_is_refused(tmp_path):
  _, content = _write(tmp_path / 'file', [1000, 1000], 'group_size:2')
  wrong = {
    'several records': content,
    'footer cannot be read': bytes(len(content)),
    'footer cannot': content[:-1],
    'cannot be read': b'short',
  }
  _, compressed = _write(tmp_path / 'file', [1000, 1000], 'group_size:1')
  for place in range(len(compressed) - 1200, len(compressed)):
    flipped = bytearray(compressed)
    flipped[place] ^= 255
    with contextlib.suppress(errors.DataError):
      record_ranges.find(lambda a, b, c=flipped: bytes(c[a:b]), len(flipped))
  for words, damaged in wrong.items():
    with pytest.raises(errors.DataError, match=words):
      record_ranges.find(lambda a, b, c=damaged: c[a:b], len(damaged))
