"""What is counted in a log that was made by hand."""

import pytest

from tests.testing import fake_workdir
from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.core import errors
from tff_algos.reports.run import committee_history
from tff_algos.reports.run import run as run_lib


@pytest.fixture
def workdir(tmp_path):
  fake_workdir.write(tmp_path, num_clusters=1, num_clients=4, num_rounds=2)
  (tmp_path / 'evaluation' / 'clients.csv').write_text(
    'client_id,group,is_attacker\n'
    'a,participating,0\nb,participating,1\nc,participating,0\n'
    'd,participating,0\nu,unseen,\n'
  )
  return tmp_path


def _client(name, distance, *, is_member=False, is_valid=True):
  return {
    'id': name,
    'is_member': is_member,
    'is_valid': is_valid,
    'distance': distance,
  }


def _entry(round_num, committee, clients, selected, is_accepted):
  return {
    'round': round_num,
    'committee': committee,
    'clients': clients,
    'selected': selected,
    'vote': {'is_accepted': is_accepted},
  }


def _write(workdir, entries):
  log = audit_log.AuditLog(workdir)
  for entry in entries:
    log.append(entry, {})


def test_counts_distances_and_roles_of_attackers(workdir):
  """Round 103 was not agreed on, and c sent NaN; round 102 lost training."""
  member = _client('d', 0.0, is_member=True)
  first = [_client('a', 1.0), _client('b', 9.0), _client('c', 2.0), member]
  false_member = _client('b', 0.0, is_member=True)
  second = [_client('a', 3.0), false_member, _client('c', 0.0, is_valid=False)]
  _write(
    workdir,
    [
      _entry(101, ['d'], first, ['a', 'b'], 1.0),
      {'round': 102},
      _entry(103, ['b'], second, ['a'], 0.0),
    ],
  )
  history = committee_history.read(run_lib.read(workdir))
  assert history.is_attacker.tolist() == [False, True, False, False]
  assert history.num_averaged.tolist() == [1, 1, 0, 0]
  assert history.distances.tolist() == [1, 9, 2, 3]
  assert history.is_false.tolist() == [False, True, False, False]
  assert history.rounds.tolist() == [101, 103]
  assert history.attackers.tolist() == [[1, 0, 1], [0, 1, 0]]


def test_no_log_is_no_history_and_a_damaged_one_an_error(workdir):
  run = run_lib.read(workdir)
  assert committee_history.read(run) is None
  (workdir / 'audit').mkdir()
  path = workdir / 'audit' / 'log.jsonl'
  path.write_text('')
  assert committee_history.read(run) is None
  path.write_text('no entry\n')
  with pytest.raises(errors.DataError, match='line 1, is no entry'):
    committee_history.read(run)
