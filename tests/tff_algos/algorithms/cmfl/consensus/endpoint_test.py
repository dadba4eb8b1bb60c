"""Bytes in, bytes out; forgeries end here."""

from tests.testing import committees
from tff_algos.algorithms.cmfl.consensus import messages


def test_messages_are_sealed_for_their_receivers():
  opened = committees.open_ballot(3, ['m0'])
  endpoints = committees.endpoints(opened)
  envelopes = endpoints['m0'].start(0.0)
  assert [envelope[:2] for envelope in envelopes] == [
    ('m0', 'm1'),
    ('m0', 'm2'),
  ]
  request = messages.Request('m0', 0, committees.TRUTH)
  for envelope in envelopes:
    opener = committees.keyring(opened, envelope.recipient)
    assert opener.open(envelope.sealed) == request
  assert envelopes[0].sealed != envelopes[1].sealed


def test_wake_time_is_the_members():
  opened = committees.open_ballot(3, ['m0'], timeout_seconds=4.0)
  waiting = committees.endpoints(opened)['m1']
  waiting.start(1.0)
  assert waiting.wake_time == 5.0
  assert len(waiting.wake(5.0)) == 2


def test_what_no_member_sealed_is_refused_and_counted():
  opened = committees.open_ballot(3, ['m0'])
  endpoints = committees.endpoints(opened)
  to_one, to_two = endpoints['m0'].start(0.0)
  for sealed in (to_two.sealed, to_one.sealed[:-1], b'', b'\0' * 500):
    assert endpoints['m1'].deliver(0.1, sealed) == []
  assert endpoints['m1'].num_refused == 4
  assert len(endpoints['m1'].deliver(0.1, to_one.sealed)) == 1
  assert endpoints['m1'].num_refused == 4
