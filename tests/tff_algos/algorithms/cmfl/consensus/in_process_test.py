"""The network inside one process: who gets what, when, and what is counted."""

import pytest

from tests.testing import committees
from tff_algos.algorithms.cmfl.consensus import in_process, messages
from tff_algos.core import errors


class _Scripted:
  """Delays by recipient; keeps what was sent."""

  def __init__(self, delays):
    self.sent = []
    self._delays = delays

  def __call__(self, number, envelope):
    assert number == len(self.sent)
    self.sent.append(envelope)
    return self._delays[envelope.recipient]


def test_a_vote_of_three_by_hand():
  endpoints = committees.endpoints(committees.open_ballot(3, ['m0']))
  fate = _Scripted({'m0': (0.1,), 'm1': (0.2, 0.3), 'm2': (0.4,)})
  num_messages, num_bytes = in_process.run(endpoints, fate)
  # Requests arrive at .2 and .4, replies at .3 and .5, decisions .2 and .4
  # later; what comes twice changes nothing.
  outcomes = [endpoint.member.outcome for endpoint in endpoints.values()]
  assert [outcome.statement for outcome in outcomes] == [committees.TRUTH] * 3
  assert [outcome.seconds for outcome in outcomes] == pytest.approx(
    [0.5, 0.7, 0.9]
  )
  expected = [('m0', 'm1'), ('m0', 'm2'), ('m1', 'm0'), ('m2', 'm0')]
  assert [envelope[:2] for envelope in fate.sent[:4]] == expected
  assert num_messages == 6
  assert num_bytes == sum(len(p.sealed) for p in fate.sent)


def test_bytes_by_hand():
  """C = 3: two requests, two replies and two decisions, each with its tag."""
  opened = committees.open_ballot(3, ['m0'])
  endpoints = committees.endpoints(opened)
  _, num_bytes = in_process.run(endpoints, in_process.steady)
  vote, digest = '0' * 32 * 3, '0' * 64
  request = messages.Request('m0', 0, committees.TRUTH)
  reply = messages.Reply('m1', 0, digest, vote)
  votes = dict.fromkeys(opened.committee, vote)
  decision = messages.Decision('m0', 0, committees.TRUTH, votes)
  sizes = [16 + len(messages.encode('r1', m)) for m in (request, reply)]
  sizes.append(16 + len(messages.encode('r1', decision)))
  assert num_bytes == 2 * sum(sizes)


def test_lost_messages_were_sent():
  endpoints = committees.endpoints(
    committees.open_ballot(3, ['m0'], max_views=1)
  )
  num_messages, _ = in_process.run(endpoints, lambda *_: ())
  assert all(
    endpoint.member.outcome.statement is None for endpoint in endpoints.values()
  )
  # Two requests, and each asks twice for another view until it gives up.
  assert num_messages == 2 + 3 * 2 * 2


def test_nothing_arrives_before_it_was_sent():
  endpoints = committees.endpoints(committees.open_ballot(3))
  with pytest.raises(errors.ConfigError, match='a delay must be >= 0'):
    in_process.run(endpoints, lambda *_: (-0.1,))
