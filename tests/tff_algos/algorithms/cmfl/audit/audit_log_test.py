import errno
import json
import os
import shutil

import numpy as np
import pytest

from tests.testing import power_loss
from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.core import durable, errors, records


def _write(folder, rounds, start=None, arrays=True):
  log = audit_log.AuditLog(folder)
  log.resume(start or 0, {})
  for round_num in rounds:
    kept = {'w': np.full(3, round_num)} if arrays else {}
    log.append({'round': round_num, 'said': f'r{round_num}'}, kept)
  return log


def _lines(folder):
  return (folder / 'audit' / 'log.jsonl').read_text().splitlines()


def test_a_line_a_round_each_chained_to_the_one_before(tmp_path):
  _write(tmp_path, [1, 2, 3])
  found = audit_log.read(tmp_path)
  assert [entry['round'] for entry, _ in found] == [1, 2, 3]
  hashes = ['', *(line_hash for _, line_hash in found)]
  assert [entry['previous'] for entry, _ in found] == hashes[:3]
  assert len(set(hashes)) == 4
  np.testing.assert_array_equal(
    audit_log.read_arrays(tmp_path, 2)['w'], [2, 2, 2]
  )


def test_nothing_is_kept_where_nothing_is_given(tmp_path):
  _write(tmp_path, [1], arrays=False)
  assert audit_log.read_arrays(tmp_path, 1) is None


def test_resume_cuts_off_what_will_be_written_again(tmp_path):
  """Rounds 1 to 4, killed in the middle of 5; the checkpoint is of round 2."""
  _write(tmp_path, [1, 2, 3, 4])
  whole = _lines(tmp_path)
  folder = tmp_path / 'audit'
  with open(folder / 'log.jsonl', 'a') as file:
    file.write('{"round": 5, "sa')
  (folder / 'round_000005.npz').write_bytes(b'half')
  (folder / 'round_000006.npz.writing').write_bytes(b'half')
  _write(tmp_path, [3, 4], start=2)
  assert _lines(tmp_path) == whole
  names = sorted(path.name for path in folder.glob('round_*'))
  assert names == [f'round_{n:06d}.npz' for n in (1, 2, 3, 4)]


def test_resume_parses_no_line_that_a_record_covers_or_that_it_cuts_off(
  tmp_path,
):
  entries = _write(tmp_path, [1, 2]).entries()
  whole = _lines(tmp_path)
  log = tmp_path / 'audit' / 'log.jsonl'
  for line in ('no entry', '3', '{}'):
    log.write_text('\n'.join([*whole, line, '']))
    # Without a record of the log, each line is asked for its round.
    text = 'line 3, is no entry of a log .*; remove the log to go on without it'
    with pytest.raises(errors.DataError, match=text):
      audit_log.AuditLog(tmp_path).resume(2, {})
    audit_log.AuditLog(tmp_path).resume(2, entries)
    assert _lines(tmp_path) == whole


def test_entries_before_a_checkpoint_outlast_a_power_loss(tmp_path):
  workdir = tmp_path / 'run'
  workdir.mkdir()

  def train():
    _write(workdir, [1])
    with durable.replacing(workdir / 'checkpoint') as file:
      file.write('1')
    _write(workdir, [2], start=1)

  def recover(place, is_finished):
    has_checkpoint = (place / 'checkpoint').exists()
    assert has_checkpoint or not is_finished
    _write(place, [], start=1 if has_checkpoint else 0)
    if has_checkpoint:
      found = [entry['round'] for entry, _ in audit_log.read(place)]
      assert found == [1]
      np.testing.assert_array_equal(
        audit_log.read_arrays(place, 1)['w'], [1, 1, 1]
      )
    else:
      assert not list(place.glob('audit/round_*'))

  power_loss.check(workdir, train, recover)


def test_half_of_a_line_is_not_read(tmp_path):
  _write(tmp_path, [1, 2])
  with open(tmp_path / 'audit' / 'log.jsonl', 'a') as file:
    file.write('{"round": 3}')
  assert len(audit_log.read(tmp_path)) == 2


def test_a_start_from_the_beginning_leaves_nothing(tmp_path):
  _write(tmp_path, [1, 2])
  _write(tmp_path, [])
  assert _lines(tmp_path) == []
  assert audit_log.read_arrays(tmp_path, 1) is None


def test_a_log_may_begin_later(tmp_path):
  _write(tmp_path, [4, 5], start=3)
  assert [json.loads(line)['round'] for line in _lines(tmp_path)] == [4, 5]


def test_a_missing_or_damaged_log(tmp_path):
  with pytest.raises(errors.DataError, match='config.algorithm.audit=digests'):
    audit_log.read(tmp_path)
  _write(tmp_path, [1])
  path = tmp_path / 'audit' / 'log.jsonl'
  path.write_text(path.read_text() + 'no entry\n')
  with pytest.raises(errors.DataError, match='line 2, is no entry'):
    audit_log.read(tmp_path)
  (tmp_path / 'audit' / 'round_000001.npz').write_bytes(b'PK no archive')
  with pytest.raises(ValueError, match='cannot be read'):
    audit_log.read_arrays(tmp_path, 1)


def test_a_disk_that_refuses_is_an_error_that_says_what_to_do(
  tmp_path, monkeypatch
):
  log = audit_log.AuditLog(tmp_path)

  def refuse(*unused):
    raise OSError(errno.ENOSPC, 'No space left')

  with monkeypatch.context() as patched:
    patched.setattr(os, 'fsync', refuse)
    with pytest.raises(errors.InfrastructureError, match='Free some space'):
      log.append({'round': 1}, {})
  shutil.rmtree(tmp_path / 'audit')
  (tmp_path / 'audit').write_text('in the way')
  with pytest.raises(errors.DataError, match='audit is a file.* Remove it'):
    log.append({'round': 1}, {})


def test_entries_cover_the_log_and_its_arrays(tmp_path):
  log = audit_log.AuditLog(tmp_path)
  assert log.entries() == {}
  for round_num in (1, 2):
    log.append({'round': round_num}, {'a': np.ones(2)})
  entries = log.entries()
  assert set(entries) == {
    'audit/log.jsonl',
    'audit/round_000001.npz',
    'audit/round_000002.npz',
  }
  log.append({'round': 3}, {})
  assert records.first_problem(tmp_path, entries) is None
  again = audit_log.AuditLog(tmp_path)
  again.resume(2, entries)
  assert again.entries() == entries
  path = tmp_path / 'audit' / 'log.jsonl'
  path.write_bytes(path.read_bytes().replace(b'"round": 1', b'"round": 7'))
  assert records.first_problem(tmp_path, entries).path == path
