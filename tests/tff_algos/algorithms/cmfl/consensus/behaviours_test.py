"""Malicious members do what their names say."""

import pytest

from tests.testing import committees
from tff_algos.algorithms.cmfl.consensus import behaviours, messages, statements
from tff_algos.algorithms.cmfl.consensus import member as member_lib

_TRUTH = statements.digest(committees.TRUTH)
_REQUEST = messages.Request('m1', 0, committees.TRUTH)


def _malicious(name):
  opened = committees.open_ballot(4, ['m1'])
  keyring = committees.keyring(opened, 'm1')
  return behaviours.build(name, opened, keyring), opened, keyring


def _to_all(message):
  return [member_lib.Send(other, message) for other in ('m0', 'm2', 'm3')]


def test_the_honest_say_what_is_due():
  honest, _, _ = _malicious('honest')
  assert honest.claim('s') == 's'
  assert honest.say(_to_all(_REQUEST)) == _to_all(_REQUEST)
  assert honest.hear(_REQUEST) == []


def test_the_silent_say_nothing():
  assert _malicious('silent')[0].say(_to_all(_REQUEST)) == []


def test_all_liars_tell_one_lie():
  assert _malicious('lying')[0].claim(committees.TRUTH) == behaviours.LIE


def test_equivocation_tells_different_things():
  said = _malicious('equivocating')[0].say(_to_all(_REQUEST))
  told = [send.message.statement for send in said]
  assert told[0] == told[2] == committees.TRUTH != told[1]


def test_partial_votes_convince_their_receiver_only():
  partial, opened, keyring = _malicious('partial')
  reply = messages.Reply('m1', 0, _TRUTH, keyring.vote(_TRUTH))
  ((_, spoiled),) = partial.say([member_lib.Send('m2', reply)])
  for other, believes in (('m0', False), ('m2', True), ('m3', False)):
    opener = committees.keyring(opened, other)
    assert opener.is_vote('m1', _TRUTH, spoiled.vote) == believes
  decision = messages.Decision('m1', 0, committees.TRUTH, {})
  assert partial.say(_to_all(decision)) == _to_all(decision)[:1]


def test_garbage_has_valid_votes():
  garbage, opened, keyring = _malicious('garbage')
  reply = messages.Reply('m1', 0, _TRUTH, keyring.vote(_TRUTH))
  change = messages.ViewChange('m1', 1, _TRUTH, keyring.vote(_TRUTH))
  decision = messages.Decision('m1', 0, committees.TRUTH, {})
  said = garbage.say(
    [member_lib.Send('m0', message) for message in (reply, change, decision)]
  )
  voted = said[0].message
  assert voted.digest != _TRUTH
  opener = committees.keyring(opened, 'm0')
  assert opener.is_vote('m1', voted.digest, voted.vote)
  assert said[1].message.view > 10**6
  assert said[2].message.statement != committees.TRUTH


def test_the_agreeable_vote_for_anything():
  agreeable, opened, _ = _malicious('agreeable')
  for statement in ('one', 'another'):
    ((recipient, reply),) = agreeable.hear(messages.Request('m2', 5, statement))
    assert (recipient, reply.view) == ('m2', 5)
    digest = statements.digest(statement)
    assert committees.keyring(opened, 'm2').is_vote('m1', digest, reply.vote)
  decision = messages.Decision('m2', 0, 's', {})
  assert agreeable.hear(decision) == agreeable.say(_to_all(decision)) == []
  change = messages.ViewChange('m2', 3, _TRUTH, 'vote')
  ((_, answer),) = agreeable.hear(change)
  assert (answer.sender, answer.view, answer.digest) == ('m1', 3, _TRUTH)


def test_replays_come_after_what_is_due():
  replaying, _, _ = _malicious('replaying')
  old, new = _to_all(_REQUEST), _to_all(_REQUEST._replace(view=1))
  assert replaying.say(old) == old
  assert replaying.say(new) == new + old
  assert replaying.say([]) == []


def test_forgers_speak_in_the_names_of_others():
  forging, _, _ = _malicious('forging')
  said = forging.say(_to_all(_REQUEST)[:1])
  assert [send.message.sender for send in said] == ['m1', 'm2', 'm3']


@pytest.mark.parametrize('name', behaviours.NAMES)
def test_none_speaks_unasked(name):
  assert _malicious(name)[0].say([]) == []
