"""Checksums of records: what is found, and what a crash may leave."""

import csv
import errno
import io

import pytest

from tff_algos.core import errors, records

_ROWS = [['round', 'a'], ['0', 'x,"y"'], ['1', ''], ['2', '0.5']]


def _table(rows) -> bytes:
  text = io.StringIO(newline='')
  csv.writer(text).writerows(rows)
  return text.getvalue().encode()


def _entry(rows=_ROWS):
  return records.describe(
    _table(rows), num_rows=len(rows) - 1, num_columns=len(rows[0])
  )


def _fault(folder, content, entry):
  (folder / 'file').write_bytes(content)
  found = records.first_problem(folder, {'file': entry})
  return None if found is None else found.fault


@pytest.mark.parametrize(
  'later',
  [
    _ROWS,
    [*_ROWS, ['3', '0.25']],
    [[*row, 'b' if row[0] == 'round' else ''] for row in _ROWS],
    [
      *([*row, 'b' if row[0] == 'round' else ''] for row in _ROWS),
      ['3', '', '1'],
    ],
  ],
)
@pytest.mark.parametrize('rest', [b'', b'4', b'4,"0.'])
def test_tables_may_have_grown(tmp_path, later, rest):
  content = _table(later) + rest
  assert _fault(tmp_path, content, _entry()) is None
  assert records.read_part(tmp_path / 'file', _entry()) == _table(_ROWS)


def test_every_changed_byte_of_a_table_is_found(tmp_path):
  whole = _table(_ROWS)
  for position in range(len(whole) - 1):  # But for the last end of a line.
    for bit in (1, 4, 32):
      changed = bytearray(whole)
      changed[position] ^= bit
      assert _fault(tmp_path, bytes(changed), _entry()), (position, bit)
  for length in range(1, len(whole) - 2):
    assert 'missing' in _fault(tmp_path, whole[:length], _entry())


def test_columns_that_were_added_are_empty_in_earlier_rows(tmp_path):
  later = [[*row, 'b' if row[0] == 'round' else '7'] for row in _ROWS]
  assert _fault(tmp_path, _table(later), _entry())


def test_logs_may_have_grown(tmp_path):
  growth = records.Growth(b'one\n')
  growth.append(b'two\n')
  entry = growth.entry(grows=True)
  assert entry == records.describe(b'one\ntwo\n', grows=True)
  assert _fault(tmp_path, b'one\ntwo\nthr', entry) is None
  assert 'SHA-256' in _fault(tmp_path, b'one\ntWo\n', entry)
  assert '4 of 8 bytes' in _fault(tmp_path, b'one\n', entry)


@pytest.mark.parametrize(
  ('content', 'fault'),
  [(b'on', '1 of 3 bytes'), (b'', 'empty'), (b'ones', 'SHA-256')],
)
def test_other_files_may_not(tmp_path, content, fault):
  (tmp_path / 'file').write_bytes(b'one')
  entry = records.describe_file(tmp_path / 'file')
  assert entry == records.describe(b'one')
  assert records.file_sha256(tmp_path / 'file') == entry['sha256']
  assert fault in _fault(tmp_path, content, entry)
  without_size = 'SHA-256' if content else 'empty'
  assert without_size in _fault(tmp_path, content, entry['sha256'])


def test_what_stands_in_the_way_is_named(tmp_path):
  entries = {'folder/file': records.describe(b'one')}
  path = tmp_path / 'folder' / 'file'

  def problem():
    return str(records.first_problem(tmp_path, entries))

  assert problem() == f'{path} is missing'
  path.parent.write_text('a file')
  assert problem() == f'{path.parent} is a file, not a folder'
  path.parent.unlink()
  path.mkdir(parents=True)
  assert problem() == f'{path} is a folder, not a file'
  path.rmdir()
  path.symlink_to(path)  # Also root cannot read it.
  assert problem().startswith(f'{path} cannot be read: Too many levels')


def test_an_error_of_the_disk_is_no_damage(tmp_path, monkeypatch):
  def fail(unused_path):
    raise OSError(errno.EIO, 'Input/output error')

  monkeypatch.setattr(records, 'describe_file', fail)
  with pytest.raises(OSError, match='Input/output error'):
    records.first_problem(tmp_path, {'file': records.describe(b'one')})


def _rewrite(workdir, text, **options):
  with records.rewriting(workdir, 'made', ['a.csv'], **options):
    (workdir / 'made' / 'a.csv').write_text(text)


def _files(workdir):
  return records.read(workdir / 'made', '')['files']


def test_files_that_are_written_again_are_recorded_again(tmp_path):
  (tmp_path / 'log').write_text('log')
  log = {'log': records.describe_file(tmp_path / 'log')}
  _rewrite(tmp_path, 'one', others=log, run_hash='x')
  assert set(_files(tmp_path)) == {'made/a.csv', 'log'}
  _rewrite(tmp_path, 'two')
  assert set(_files(tmp_path)) == {'made/a.csv', 'log'}
  assert records.first_problem(tmp_path, _files(tmp_path)) is None
  assert records.read(tmp_path / 'made', '')['run_hash'] == 'x'
  _rewrite(tmp_path, 'two', others={})
  assert set(_files(tmp_path)) == {'made/a.csv'}


def test_one_program_writes_at_a_time(tmp_path, monkeypatch):
  monkeypatch.setattr(records, '_PATIENCE_SECONDS', 0.1)
  with records.rewriting(tmp_path, 'made', ['a.csv']):
    with pytest.raises(errors.WorkdirBusyError, match='another program writes'):
      _rewrite(tmp_path, 'two')
    (tmp_path / 'made' / 'a.csv').write_text('one')
  assert records.first_problem(tmp_path, _files(tmp_path)) is None


def test_files_of_something_else_are_removed(tmp_path):
  _rewrite(tmp_path, 'one', run_hash='x')
  (tmp_path / 'made' / 'b.csv').write_text('of x')
  _rewrite(tmp_path, 'two', run_hash='x')
  assert (tmp_path / 'made' / 'b.csv').exists()
  _rewrite(tmp_path, 'three', run_hash='y')
  assert sorted(path.name for path in (tmp_path / 'made').iterdir()) == [
    'a.csv',
    records.FILE,
  ]
  assert records.first_problem(tmp_path, _files(tmp_path)) is None


def test_process_that_is_killed_leaves_no_entry_that_does_not_match(tmp_path):
  _rewrite(tmp_path, 'one')
  with pytest.raises(KeyboardInterrupt):
    with records.rewriting(tmp_path, 'made', ['a.csv']):
      (tmp_path / 'made' / 'a.csv').write_text('tw')
      raise KeyboardInterrupt
  assert records.first_problem(tmp_path, _files(tmp_path)) is None


def test_records_that_are_damaged_are_named(tmp_path):
  assert records.read(tmp_path, '') is None
  records.write(tmp_path, {'a': records.describe(b'1')})
  path = tmp_path / records.FILE
  path.write_text(
    path.read_text().replace('"size_bytes": 1', '"size_bytes": 2')
  )
  with pytest.raises(errors.DataError, match=f'{path} is damaged.*Do this'):
    records.read(tmp_path, 'Do this.')
