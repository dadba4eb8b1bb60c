"""Members in real processes that talk over real sockets."""

import contextlib
import json
import pathlib
import secrets
import signal
import socket
import subprocess
import sys

import pytest

from tests.testing import committees, ports, socket_members
from tff_algos.algorithms.cmfl.consensus import authentication, behaviours
from tff_algos.algorithms.cmfl.consensus import member as member_lib
from tff_algos.core import errors

_ROOT = pathlib.Path(__file__).parents[2]
_PATIENCE_SECONDS = 60
_QUICK = {'max_views': 3, 'timeout_seconds': 0.3, 'linger_seconds': 0.5}


class _Committee:
  """The processes of one vote."""

  def __init__(self, size, primaries=(), malicious=None, **options):
    opened = committees.open_ballot(size, primaries)
    self.addresses = dict(
      zip(opened.committee, ports.free_addresses(size), strict=True)
    )
    keys = authentication.deal_keys(
      opened.committee, lambda: secrets.token_bytes(32)
    )
    self._parts = {
      member: {
        'member': member,
        'committee': opened.committee,
        'seed': opened.seed,
        'max_views': 20,
        'timeout_seconds': 1.0,
        # A busy machine lets others come late.
        'linger_seconds': 2.0,
        'behaviour': (malicious or {}).get(member, 'honest'),
        'addresses': self.addresses,
        'keys': {other: key.hex() for other, key in keys[member].items()},
        **options,
      }
      for member in opened.committee
    }
    self.processes = {}

  def start(self, *without):
    """Starts the members, and lets all begin when all are there."""
    for member in {*self._parts} - {*without}:
      self.processes[member] = subprocess.Popen(
        [sys.executable, '-m', 'tests.testing.committee_program'],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
      )
    for member, process in self.processes.items():
      process.stdin.write(json.dumps(self._parts[member]) + '\n')
      process.stdin.flush()
    for process in self.processes.values():
      assert process.stdout.readline() == 'begin\n'

  def kill(self, member):
    process = self.processes.pop(member)
    process.kill()
    process.communicate()

  def outcomes(self):
    """Returns (statement, view, reason, number of refused) by member."""
    outcomes = {}
    for member, process in self.processes.items():
      said, complaints = process.communicate(timeout=_PATIENCE_SECONDS)
      assert (process.returncode, complaints) == (0, '')
      outcomes[member] = tuple(json.loads(said))
    return outcomes

  def close(self):
    for member in [*self.processes]:
      self.kill(member)


@pytest.fixture(name='committee')
def _committee():
  with contextlib.ExitStack() as stack:

    def build(*arguments, **options):
      built = _Committee(*arguments, **options)
      stack.callback(built.close)
      return built

    yield build


def test_four_processes_agree_though_a_stranger_talks(committee):
  """The stranger sends what it can make up before they begin to listen."""
  vote = committee(4)
  vote.start()
  host, port = vote.addresses['m2'].split(':')
  while vote.processes['m2'].poll() is None:
    with contextlib.suppress(OSError):
      with socket.create_connection((host, int(port)), 0.2) as stranger:
        stranger.sendall(b'\0' * 16 + b'{"kind":"Decision"}')
        break
  outcomes = vote.outcomes()
  assert {o[0] for o in outcomes.values()} == {committees.TRUTH}
  assert outcomes['m2'][3] == 1


def test_four_processes_of_which_one_is_killed_skip(committee):
  """Three replicates must reply, and only two are left."""
  vote = committee(4, malicious={'m1': 'silent'}, **_QUICK)
  vote.start()
  vote.kill('m1')
  outcomes = vote.outcomes()
  assert {*outcomes} == {'m0', 'm2', 'm3'}
  for statement, _, reason, _ in outcomes.values():
    assert statement is None
    assert reason in (member_lib.VIEWS, member_lib.SILENCE)


def test_four_processes_of_which_one_lies_never_accept_the_lie(committee):
  vote = committee(4, ['m1'], {'m1': 'lying'}, **_QUICK)
  vote.start()
  outcomes = vote.outcomes()
  assert {outcomes[m][0] for m in ('m0', 'm2', 'm3')} == {None}
  assert behaviours.LIE not in {o[0] for o in outcomes.values()}


@pytest.mark.parametrize('name', ['lying', 'forging'])
def test_five_processes_agree_though_the_primary_is_malicious(committee, name):
  vote = committee(5, ['m1', 'm2', 'm3'], {'m1': name})
  vote.start()
  outcomes = vote.outcomes()
  del outcomes['m1']
  assert {o[0] for o in outcomes.values()} == {committees.TRUTH}


def test_five_processes_agree_when_the_primary_is_killed(committee):
  # It says nothing, so that it cannot have asked before it is killed.
  vote = committee(5, ['m1', 'm2', 'm3'], {'m1': 'silent'})
  vote.start()
  vote.kill('m1')
  outcomes = vote.outcomes()
  assert {o[0] for o in outcomes.values()} == {committees.TRUTH}
  assert all(o[1] >= 1 for o in outcomes.values())


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGKILL])
def test_an_ended_process_leaves_its_port_and_nothing_else(committee, signum):
  vote = committee(3, timeout_seconds=30.0)
  vote.start('m1', 'm2')
  host, port = vote.addresses['m0'].split(':')
  process = vote.processes['m0']
  while process.poll() is None:
    with contextlib.suppress(OSError):
      socket.create_connection((host, int(port)), 0.2).close()
      break
  process.send_signal(signum)
  _, complaints = process.communicate(timeout=_PATIENCE_SECONDS)
  expected = 130 if signum == signal.SIGINT else -signal.SIGKILL
  assert (process.returncode, complaints) == (expected, '')
  socket.create_server((host, int(port))).close()


def test_an_address_that_is_taken():
  opened = committees.open_ballot(1)
  (address,) = ports.free_addresses(1)
  host, port = address.split(':')
  with socket.create_server((host, int(port))):
    with pytest.raises(errors.RuntimeFailureError, match="'m0' cannot listen"):
      socket_members.take_part(
        committees.endpoints(opened)['m0'], {'m0': address}
      )


@pytest.mark.parametrize('addresses', [{}, {'m0': 'nowhere'}])
def test_every_member_needs_an_address(addresses):
  ours = committees.endpoints(committees.open_ballot(1))['m0']
  with pytest.raises(errors.ConfigError, match="address of 'm0' must be"):
    socket_members.take_part(ours, addresses)


def test_one_member_needs_nobody():
  ours = committees.endpoints(committees.open_ballot(1))['m0']
  (address,) = ports.free_addresses(1)
  outcome = socket_members.take_part(ours, {'m0': address}, linger_seconds=0)
  assert outcome.statement == committees.TRUTH
