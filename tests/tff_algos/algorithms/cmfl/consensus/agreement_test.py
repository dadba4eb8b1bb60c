"""Votes as a whole: counts by hand, then any schedule and any malice."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.testing import committees
from tff_algos.algorithms.cmfl.consensus import (
  agreement,
  behaviours,
  messages,
  quorum,
)
from tff_algos.algorithms.cmfl.consensus import member as member_lib
from tff_algos.core import errors

_TRUTH = committees.TRUTH
_MALICE = [name for name in behaviours.NAMES if name != 'honest']


def _agree(opened, malicious=(), fate=agreement.steady, proposals=None):
  return agreement.agree(
    opened,
    proposals or dict.fromkeys(opened.committee, _TRUTH),
    behaviours=dict(malicious),
    fate=fate,
  )


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
  num_messages, num_bytes = agreement.run(endpoints, fate)
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
  _, num_bytes = agreement.run(endpoints, agreement.steady)
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
  num_messages, _ = agreement.run(endpoints, lambda *_: ())
  assert all(
    endpoint.member.outcome.statement is None for endpoint in endpoints.values()
  )
  # Two requests, and each asks twice for another view until it gives up.
  assert num_messages == 2 + 3 * 2 * 2


def test_nothing_arrives_before_it_was_sent():
  endpoints = committees.endpoints(committees.open_ballot(3))
  with pytest.raises(errors.ConfigError, match='a delay must be >= 0'):
    agreement.run(endpoints, lambda *_: (-0.1,))


@pytest.mark.parametrize('size', [1, 2, 3, 4, 5, 43])
def test_an_honest_committee_needs_one_view(size):
  """Requests, replies and decisions: 3 (C - 1) messages, three delays."""
  result = _agree(committees.open_ballot(size))
  assert (result.value, result.reason, result.num_views) == (_TRUTH, '', 1)
  assert result.num_messages == 3 * (size - 1)
  assert result.seconds == pytest.approx(0.03 if size > 1 else 0)
  assert not result.suspects and not result.num_refused


def test_a_silent_primary_costs_one_view_more():
  """C = 5: after 1 s four members tell four each that they want another
  primary; that one asks 4, has 3 replies and tells 4."""
  opened = committees.open_ballot(5, ['m3', 'm0'])
  result = _agree(opened, {'m3': 'silent'})
  assert (result.value, result.num_views) == (_TRUTH, 2)
  assert {*result.outcomes} == {'m0', 'm1', 'm2', 'm4'}
  assert result.num_messages == 4 * 4 + 4 + 3 + 4
  assert result.seconds == pytest.approx(1 + 0.01 + 0.03)


def test_a_lying_primary_is_replaced_at_once_and_named():
  opened = committees.open_ballot(5, ['m3', 'm0'])
  result = _agree(opened, {'m3': 'lying'})
  assert (result.value, result.num_views) == (_TRUTH, 2)
  assert result.seconds == pytest.approx(0.02 + 0.03)
  assert result.suspects == {'m3'}


def test_the_word_of_f_members_blames_nobody():
  """C = 5, f = 1: of a lying primary the messages to one member arrive."""
  opened = committees.open_ballot(5, ['m3', 'm0'])

  def partition(number, envelope):
    is_lost = envelope.sender == 'm3' and envelope.recipient != 'm0'
    return () if is_lost else (0.01,)

  result = _agree(opened, {'m3': 'lying'}, partition)
  assert (result.value, result.num_views) == (_TRUTH, 2)
  assert not result.suspects


def test_too_few_honest_replicates_skip_at_the_bound_on_views():
  opened = committees.open_ballot(4, max_views=3)
  result = _agree(opened, {'m1': 'silent'})
  assert (result.value, result.reason) == (None, member_lib.VIEWS)
  assert result.num_views == 3
  # Views last 1, 2 and 3 s, and each ends with a message to all.
  assert result.seconds == pytest.approx(1 + 2 + 3 + 3 * 0.01)


def test_two_members_that_differ_skip():
  opened = committees.open_ballot(2, max_views=4)
  result = _agree(opened, {'m1': 'lying'})
  assert (result.value, result.reason) == (None, member_lib.VIEWS)


def test_no_majority_is_silence():
  opened = committees.open_ballot(3, max_views=2)
  result = _agree(opened, {'m0': 'silent', 'm1': 'silent'})
  assert (result.value, result.reason) == (None, member_lib.SILENCE)


def test_mean_number_of_views_is_one_over_the_honest_share():
  """Section 4.2.4: a lying primary costs a view.

  120 votes with h = 3/4; a geometric variable with this mean has the standard
  deviation 0.667, so 4 of the mean's are 0.244: one seed in 10,000 fails.
  """
  malicious = dict.fromkeys(['m0', 'm1'], 'lying')
  proposals = dict.fromkeys(committees.names(8), _TRUTH)
  views = []
  for seed in range(120):
    opened = agreement.ballot_lib.Ballot(committees.names(8), 'r1', seed)
    result = agreement.agree(opened, proposals, behaviours=malicious)
    assert result.value == _TRUTH
    views.append(result.num_views)
  assert abs(np.mean(views) - 4 / 3) < 0.244


def test_liars_force_their_lie_with_as_many_as_a_proof_needs():
  """C = 7 needs 5 votes. Four liars are a majority, and can only block."""
  for num_liars, expected in ((3, None), (4, None), (5, behaviours.LIE)):
    liars = committees.names(num_liars)
    opened = committees.open_ballot(7, ['m0'], max_views=6)
    result = _agree(opened, dict.fromkeys(liars, 'lying'))
    assert {o.statement for o in result.outcomes.values()} == {expected}


def test_beyond_the_bound_honest_members_may_differ():
  """C = 5, two honest members that differ, three that vote for both.

  Each honest one has 4 votes as primary before it hears of the other.
  """
  opened = committees.open_ballot(5, ['m0', 'm1'])

  def partition(number, envelope):
    return (60.0,) if {*envelope[:2]} == {'m0', 'm1'} else (0.01,)

  malicious = dict.fromkeys(['m2', 'm3', 'm4'], 'agreeable')
  proposals = dict.fromkeys(opened.committee, 'one') | {'m1': 'other'}
  result = _agree(opened, malicious, partition, proposals)
  assert {o.statement for o in result.outcomes.values()} == {'one', 'other'}


def test_the_outvoted_follow_and_nobody_votes_for_two_things():
  """Honest members that added up in another order: 4 of 5 are a proof."""
  opened = committees.open_ballot(5)
  proposals = dict.fromkeys(opened.committee, _TRUTH) | {'m2': 'rounded'}
  result = _agree(opened, proposals=proposals)
  assert {o.statement for o in result.outcomes.values()} == {_TRUTH}


def test_an_even_split_skips():
  opened = committees.open_ballot(6, max_views=5)
  proposals = dict.fromkeys(opened.committee[:3], 'one')
  proposals |= dict.fromkeys(opened.committee[3:], 'other')
  result = _agree(opened, proposals=proposals)
  assert (result.value, result.reason) == (None, member_lib.VIEWS)


def test_forged_messages_are_refused_and_counted():
  opened = committees.open_ballot(5, ['m3', 'm0'])
  result = _agree(opened, {'m3': 'forging'})
  assert result.value == _TRUTH
  # To each replicate the primary forges a request and a decision in the names
  # of the three others.
  assert result.num_refused == 2 * 4 * 3
  assert not result.suspects


def test_the_same_vote_has_the_same_result():
  fates = ((1.3,), (), (0.2, 1.9), (0.7,), (0.1,))
  opened = committees.open_ballot(7)
  malicious = {'m1': 'lying', 'm4': 'replaying'}
  one, same = (
    _agree(opened, malicious, lambda number, _: fates[number % 5])
    for _ in range(2)
  )
  assert one == same


@pytest.mark.parametrize('name', behaviours.NAMES)
def test_a_committee_of_malicious_members_ends(name):
  opened = committees.open_ballot(4, max_views=3)
  result = _agree(opened, dict.fromkeys(opened.committee, name))
  assert {*result.outcomes} == {*opened.committee}


@st.composite
def _votes(draw, max_faults, min_copies, max_views=6):
  """Draws a committee, who of it is malicious and how, and fates in turn."""
  size = draw(st.integers(1, 8))
  malicious = draw(
    st.dictionaries(
      st.sampled_from(committees.names(size)),
      st.sampled_from(_MALICE),
      max_size=min(max_faults(size), size),
    )
  )
  delays = st.floats(0, 3)
  copies = st.lists(delays, min_size=min_copies, max_size=2).map(tuple)
  fates = draw(st.lists(copies, min_size=1, max_size=30))
  opened = agreement.ballot_lib.Ballot(
    committees.names(size),
    'r1',
    draw(st.integers(0, 10**6)),
    agreement.ballot_lib.Limits(max_views=max_views),
  )
  return opened, malicious, lambda number, _: fates[number % len(fates)]


_SETTINGS = hypothesis.settings(max_examples=50)


@_SETTINGS
@hypothesis.given(_votes(quorum.tolerated_faults, min_copies=1, max_views=40))
def test_with_f_faults_and_eventual_delivery_all_honest_members_accept(vote):
  """Views last up to 40 s, and messages 3 s at most.

  It fails if the 29 views of 12 s and more have malicious primaries only, each
  with chance 2/8 or less: once in 10**17 votes.
  """
  result = _agree(*vote)
  assert {o.statement for o in result.outcomes.values()} == {_TRUTH}
  assert result.value == _TRUTH
  assert not result.suspects & {*result.outcomes}


@_SETTINGS
@hypothesis.given(
  _votes(lambda size: quorum.required_votes(size) - 1, min_copies=0)
)
def test_whatever_is_lost_no_honest_member_accepts_anything_else(vote):
  """Also when so many are malicious that the committee may be blocked."""
  opened, malicious, fate = vote
  hypothesis.assume(len(malicious) < len(opened.committee))
  result = _agree(opened, malicious, fate)
  for outcome in result.outcomes.values():
    assert outcome.statement in (_TRUTH, None)
    assert bool(outcome.reason) == (outcome.statement is None)


@_SETTINGS
@hypothesis.given(
  _votes(quorum.tolerated_faults, min_copies=0),
  st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_honest_members_that_differ_never_accept_two_things(vote, camps):
  """f <= 2 of at most 8 members can complete a proof for one camp only."""
  opened, malicious, fate = vote
  proposals = {
    member: 'one' if camp else 'other'
    for member, camp in zip(opened.committee, camps, strict=False)
  }
  result = _agree(opened, malicious, fate, proposals)
  accepted = {o.statement for o in result.outcomes.values()} - {None}
  assert len(accepted) <= 1
  assert result.value in (*accepted, None)


@pytest.mark.parametrize(
  ('proposals', 'malicious', 'text'),
  [
    ({'m0': 's'}, {}, "member 'm1' has no proposal"),
    ({'m0': 's', 'm1': 's', 'x': 's'}, {}, r"\['x'\] are not in the committee"),
    ({'m0': 's', 'm1': 's'}, {'y': 'silent'}, r"\['y'\] are not in the"),
    (
      {'m0': 's', 'm1': 's'},
      {'m0': 'rude'},
      "behaviour must be one of 'honest', 'silent', 'lying'",
    ),
  ],
)
def test_bad_input(proposals, malicious, text):
  with pytest.raises(errors.ConfigError, match=text):
    agreement.agree(committees.open_ballot(2), proposals, behaviours=malicious)
