"""The network inside one process: who gets what, when, and what is counted."""

import pytest

from tests.testing import committees
from tff_algos.algorithms.cmfl.consensus import endpoint as endpoint_lib
from tff_algos.algorithms.cmfl.consensus import in_process, messages
from tff_algos.core import errors

_ENVELOPE = endpoint_lib.Envelope('m0', 'm1', b'')


def _fates(network, num_envelopes=2000):
  return [network.fate(number, _ENVELOPE) for number in range(num_envelopes)]


def test_by_default_all_takes_ten_milliseconds():
  assert {*_fates(in_process.SeededNetwork(), 10)} == {(0.01,)}


def test_rates_are_what_they_say():
  """Six standard deviations of 2000 draws; one seed in 10**8 fails."""
  network = in_process.SeededNetwork(0.5, 1.5, 0.2, 0.3, seed=1)
  fates = _fates(network)
  assert abs(sum(not fate for fate in fates) - 400) < 107
  assert abs(sum(len(fate) == 2 for fate in fates) - 2000 * 0.8 * 0.3) < 114
  delays = [delay for fate in fates for delay in fate]
  assert all(0.5 <= delay <= 1.5 for delay in delays)
  assert abs(sum(delays) / len(delays) - 1) < 6 * 0.29 / len(delays) ** 0.5
  assert fates == _fates(network)
  assert fates != _fates(in_process.SeededNetwork(0.5, 1.5, 0.2, 0.3, seed=2))


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'min_delay_seconds': -1}, 'min_delay_seconds must be a finite'),
    (
      {'min_delay_seconds': 2},
      'max_delay_seconds must be a finite number >= 2',
    ),
    ({'drop_rate': 1.0}, 'drop_rate must be a number >= 0 and < 1'),
    ({'duplicate_rate': 2.0}, 'duplicate_rate must be a number from 0 to 1'),
    ({'seed': -1}, 'seed must be an integer >= 0'),
  ],
)
def test_options_are_checked(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    in_process.SeededNetwork(**options)


class _Scripted:
  """Delays by recipient; keeps what was sent."""

  def __init__(self, delays):
    self.sent = []
    self._delays = delays

  def fate(self, number, envelope):
    assert number == len(self.sent)
    self.sent.append(envelope)
    return self._delays[envelope.recipient]


def test_a_vote_of_three_by_hand():
  endpoints = committees.endpoints(committees.open_ballot(3, ['m0']))
  network = _Scripted({'m0': (0.1,), 'm1': (0.2, 0.3), 'm2': (0.4,)})
  counts = in_process.run(endpoints, network)
  # Requests arrive at .2 and .4, replies at .3 and .5, decisions .2 and .4
  # later; what comes twice changes nothing.
  outcomes = [endpoint.member.outcome for endpoint in endpoints.values()]
  assert [outcome.statement for outcome in outcomes] == [committees.TRUTH] * 3
  assert [outcome.seconds for outcome in outcomes] == pytest.approx(
    [0.5, 0.7, 0.9]
  )
  expected = [('m0', 'm1'), ('m0', 'm2'), ('m1', 'm0'), ('m2', 'm0')]
  assert [envelope[:2] for envelope in network.sent[:4]] == expected
  assert counts.num_messages == 6
  assert counts.num_bytes == sum(len(p.sealed) for p in network.sent)


def test_bytes_by_hand():
  """C = 3: two requests, two replies and two decisions, each with its tag."""
  opened = committees.open_ballot(3, ['m0'])
  endpoints = committees.endpoints(opened)
  counts = in_process.run(endpoints, in_process.SeededNetwork())
  vote, digest = '0' * 32 * 3, '0' * 64
  request = messages.Request('m0', 0, committees.TRUTH)
  reply = messages.Reply('m1', 0, digest, vote)
  votes = dict.fromkeys(opened.committee, vote)
  decision = messages.Decision('m0', 0, committees.TRUTH, votes)
  sizes = [16 + len(messages.encode('r1', m)) for m in (request, reply)]
  sizes.append(16 + len(messages.encode('r1', decision)))
  assert counts.num_bytes == 2 * sum(sizes)


def test_lost_messages_were_sent():
  endpoints = committees.endpoints(
    committees.open_ballot(3, ['m0'], max_views=1)
  )
  counts = in_process.run(endpoints, _Scripted(dict.fromkeys(endpoints, ())))
  assert all(
    endpoint.member.outcome.statement is None for endpoint in endpoints.values()
  )
  # Two requests, and each asks twice for another view until it gives up.
  assert counts.num_messages == 2 + 3 * 2 * 2


def test_nothing_arrives_before_it_was_sent():
  endpoints = committees.endpoints(committees.open_ballot(3))
  network = _Scripted(dict.fromkeys(endpoints, (-0.1,)))
  with pytest.raises(errors.ConfigError, match='a delay must be >= 0'):
    in_process.run(endpoints, network)
