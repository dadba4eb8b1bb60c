"""The state machine, message by message, by hand."""

from tests.testing import committees
from tff_algos.algorithms.cmfl.consensus import member as member_lib
from tff_algos.algorithms.cmfl.consensus import messages, statements

_TRUTH = committees.TRUTH
_DIGEST = statements.digest(_TRUTH)
_LIE = statements.state(['c9'], 'a lie')
_LIE_DIGEST = statements.digest(_LIE)


class _Case:
  """Member `me` of a committee of 5 (3 replies, 4 votes, majority 3, f = 1)."""

  def __init__(self, me, primaries=('m0', 'm1'), size=5, **limits):
    self.ballot = committees.open_ballot(size, primaries, **limits)
    self.me = me
    self.member = member_lib.Member(
      self.ballot, _TRUTH, committees.keyring(self.ballot, me)
    )
    self.others = [m for m in self.ballot.committee if m != me]

  def vote(self, voter, digest=_DIGEST):
    return committees.keyring(self.ballot, voter).vote(digest)

  def reply(self, sender, view=0, digest=_DIGEST):
    return messages.Reply(sender, view, digest, self.vote(sender, digest))

  def change(self, sender, view, digest=_DIGEST):
    return messages.ViewChange(sender, view, digest, self.vote(sender, digest))

  def decision(self, sender, voters, statement=_TRUTH, view=0):
    digest = statements.digest(statement)
    votes = {voter: self.vote(voter, digest) for voter in voters}
    return messages.Decision(sender, view, statement, votes)

  def say(self, message, now=0.5):
    return self.member.receive(now, message)

  def to_all(self, message):
    return [member_lib.Send(other, message) for other in self.others]


def test_primary_accepts_at_the_third_reply_of_five():
  case = _Case('m0')
  request = messages.Request('m0', 0, _TRUTH)
  assert case.member.start(0.0) == case.to_all(request)
  assert not case.say(case.reply('m1'))
  assert not case.say(case.reply('m1'))  # Once is enough.
  assert not case.say(case.reply('m2'))
  proof = case.decision('m0', ['m0', 'm1', 'm2', 'm4'])
  assert case.say(case.reply('m4'), now=0.7) == case.to_all(proof)
  assert case.member.outcome == (_TRUTH, 0, '', 0.7)
  assert case.member.wake_time is None
  # Whoever comes late changes nothing.
  assert not case.say(case.reply('m3'))


def test_replies_that_do_not_count():
  case = _Case('m0')
  case.member.start(0.0)
  case.say(case.reply('m1'))
  case.say(case.reply('m2'))
  # Of another view, for something else, and without a valid vote.
  assert not case.say(case.reply('m3', view=1))
  assert not case.say(case.reply('m3', digest=_LIE_DIGEST))
  assert not case.say(messages.Reply('m3', 0, _DIGEST, case.vote('m4')))
  assert case.member.outcome is None
  assert case.say(case.reply('m3'))


def test_replies_of_the_view_before_do_not_count():
  """The member is the primary of two views in a row."""
  case = _Case('m0', ('m0', 'm0'))
  case.member.start(0.0)
  case.say(case.reply('m1'))
  case.say(case.reply('m2'))
  case.say(case.change('m3', 1))
  request = messages.Request('m0', 1, _TRUTH)
  assert case.say(case.change('m4', 1))[-4:] == case.to_all(request)
  for sender in ('m3', 'm1'):
    assert not case.say(case.reply(sender, view=1))
  case.say(case.reply('m2', view=1))
  assert case.member.outcome.view == 1


def test_replicate_replies_to_its_own_result_once():
  case = _Case('m2')
  assert case.member.start(0.0) == []
  reply = case.reply('m2')
  request = messages.Request('m0', 0, _TRUTH)
  assert case.say(request) == [member_lib.Send('m0', reply)]
  assert case.say(request) == []
  assert case.say(request._replace(statement=_LIE)) == []
  assert case.member.outcome is None


def test_replicate_that_is_asked_for_something_else_wants_another_primary():
  case = _Case('m2')
  case.member.start(0.0)
  sends = case.say(messages.Request('m0', 0, _LIE))
  assert sends == case.to_all(case.change('m2', 1))
  # The truth comes too late: the primary has said two things.
  assert case.say(messages.Request('m0', 0, _TRUTH)) == []


def test_only_the_primary_of_the_view_may_ask():
  case = _Case('m2')
  case.member.start(0.0)
  assert case.say(messages.Request('m1', 0, _TRUTH)) == []
  assert case.say(messages.Request('m3', 0, _LIE)) == []


def test_a_request_may_come_before_its_view():
  case = _Case('m2')
  case.member.start(0.0)
  assert case.say(messages.Request('m1', 1, _TRUTH)) == []
  case.say(case.change('m0', 1))
  # The second other member makes us join, and three are the majority.
  assert case.say(case.change('m3', 1)) == [
    *case.to_all(case.change('m2', 1)),
    member_lib.Send('m1', case.reply('m2', view=1)),
  ]


def test_a_stale_request_gets_no_reply():
  case = _Case('m2')
  case.member.start(0.0)
  case.say(case.change('m0', 1))
  case.say(case.change('m3', 1))
  assert case.say(messages.Request('m0', 0, _TRUTH)) == []


def test_a_decision_of_a_view_that_cannot_be_is_refused():
  """Its votes are true, but they name no view."""
  case = _Case('m2', max_views=3)
  case.member.start(0.0)
  voters = ['m0', 'm1', 'm3', 'm4']
  for view in (3, 10**18):
    assert case.say(case.decision('m1', voters, view=view)) == []
    assert case.member.outcome is None
  case.say(case.decision('m1', voters, view=2))
  assert case.member.outcome.view == 2


def test_patience_ends_and_grows():
  case = _Case('m1', timeout_seconds=2.0)
  case.member.start(1.0)
  assert case.member.wake_time == 3.0
  assert case.member.wake(3.0) == case.to_all(case.change('m1', 1))
  assert case.member.wake_time == 5.0
  case.say(case.change('m2', 1), now=3.5)
  sends = case.say(case.change('m3', 1), now=3.6)
  assert sends == case.to_all(messages.Request('m1', 1, _TRUTH))
  assert case.member.wake_time == 3.6 + 2 * 2.0


def test_one_member_alone_moves_nobody():
  """f = 1 may want what it likes."""
  case = _Case('m2')
  case.member.start(0.0)
  for view in (1, 5, 10**9):
    assert case.say(case.change('m4', view)) == []


def test_views_go_as_far_as_an_honest_member_wants():
  case = _Case('m2', ('m0', 'm1', 'm3'))
  case.member.start(0.0)
  case.say(case.change('m4', 10**9))
  sends = case.say(case.change('m3', 2))
  assert sends == case.to_all(case.change('m2', 2))
  assert case.say(messages.Request('m3', 2, _TRUTH)) == [
    member_lib.Send('m3', case.reply('m2', view=2))
  ]


def test_who_lags_behind_is_told():
  case = _Case('m2')
  case.member.start(0.0)
  case.say(case.change('m0', 2))
  case.say(case.change('m3', 2))
  expected = [member_lib.Send('m4', case.change('m2', 2))]
  assert case.say(case.change('m4', 1)) == expected


def test_a_decision_needs_the_votes_of_replicates_and_primary():
  case = _Case('m2')
  case.member.start(0.0)
  assert case.say(case.decision('m0', ['m0', 'm1'])) == []
  assert case.member.outcome is None
  # With our own that makes four.
  case.say(case.decision('m0', ['m0', 'm3'], view=3), now=0.9)
  assert case.member.outcome == (_TRUTH, 3, '', 0.9)


def test_votes_of_view_changes_count_for_a_decision():
  case = _Case('m2')
  case.member.start(0.0)
  case.say(case.change('m1', 1))
  case.say(case.change('m3', 1))
  assert case.member.outcome is None  # Nobody says that it is decided.
  case.say(case.decision('m0', ['m0']))
  assert case.member.outcome.statement == _TRUTH


def test_the_outvoted_accept_what_is_proved():
  case = _Case('m2')
  case.member.start(0.0)
  case.say(case.decision('m0', ['m0', 'm1', 'm3'], statement=_LIE))
  assert case.member.outcome is None
  case.say(case.decision('m0', ['m4'], statement=_LIE))
  assert case.member.outcome.statement == _LIE
  # Once accepted, it stays.
  case.say(case.decision('m0', ['m0', 'm1', 'm3', 'm4']))
  assert case.member.outcome.statement == _LIE


def test_who_has_accepted_tells_who_waits_and_keeps_replying():
  case = _Case('m2')
  case.member.start(0.0)
  case.say(case.change('m4', 1))
  proof = case.decision('m2', ['m0', 'm1', 'm2', 'm3', 'm4'])
  sends = case.say(case.decision('m0', ['m0', 'm1', 'm3']))
  assert sends == [member_lib.Send('m4', proof)]
  assert case.say(case.change('m4', 1)) == [member_lib.Send('m4', proof)]
  # It is not the primary that the others wait for, but it helps them.
  sends = case.say(case.change('m3', 1))
  assert sends[0] == member_lib.Send('m3', proof)
  assert case.member.wake_time is None
  assert case.say(messages.Request('m1', 1, _TRUTH)) == [
    member_lib.Send('m1', case.reply('m2', view=1))
  ]


def test_the_bound_on_views_skips_and_says_so():
  case = _Case('m2', max_views=2)
  case.member.start(0.0)
  for view in (1, 2):
    case.say(case.change('m0', view), now=view)
    case.say(case.change('m3', view), now=view)
  assert case.member.outcome == (None, 1, member_lib.VIEWS, 2)
  assert case.member.wake_time is None
  assert not case.member.suspects
  # Others know better.
  case.say(case.decision('m0', ['m0', 'm1', 'm3']), now=7.0)
  assert case.member.outcome == (_TRUTH, 0, '', 7.0)


def test_silence_of_all_others_skips_and_says_so():
  case = _Case('m2', max_views=3)
  case.member.start(0.0)
  num_waits = 0
  while case.member.wake_time is not None:
    case.member.wake(case.member.wake_time)
    num_waits += 1
  assert num_waits == 2 * 3 + 1
  assert case.member.outcome == (None, 0, member_lib.SILENCE, 7.0)


def test_one_member_agrees_with_itself():
  case = _Case('m0', (), size=1)
  assert case.member.start(0.0) == []
  assert case.member.outcome == (_TRUTH, 0, '', 0.0)


def test_two_members_need_both():
  case = _Case('m0', ('m0',), size=2)
  case.member.start(0.0)
  assert case.member.outcome is None
  proof = case.decision('m0', ['m0', 'm1'])
  assert case.say(case.reply('m1')) == [member_lib.Send('m1', proof)]

  replicate = _Case('m1', ('m0',), size=2)
  replicate.member.start(0.0)
  replicate.say(replicate.decision('m0', []))
  assert replicate.member.outcome is None
  replicate.say(proof)
  assert replicate.member.outcome.statement == _TRUTH


def test_suspects_said_something_else_than_what_was_accepted():
  case = _Case('m2')
  case.member.start(0.0)
  case.say(messages.Request('m4', 0, _LIE))
  case.say(case.reply('m3', digest=_LIE_DIGEST))
  assert not case.member.suspects
  case.say(case.decision('m0', ['m0', 'm1', 'm3']))
  assert case.member.suspects == {'m3', 'm4'}
