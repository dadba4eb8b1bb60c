"""Only the sender can have sealed a message; only the voter cast a vote."""

import secrets

import hypothesis
import pytest
from hypothesis import strategies as st

from tff_algos.algorithms.cmfl.consensus import authentication, messages
from tff_algos.core import errors

_COMMITTEE = ('a', 'b', 'c')
_KEYS = authentication.simulated_keys(_COMMITTEE, seed=3)


def _keyring(member, instance='r1', keys=_KEYS):
  return authentication.Keyring(member, _COMMITTEE, keys[member], instance)


def _sealed(by='a', to='b', says='a', instance='r1'):
  message = messages.Request(says, 2, 's')
  spelled = messages.encode(instance, message)
  return _keyring(by, instance).seal(to, spelled)


def test_two_members_share_a_key_that_nobody_else_has():
  keys = authentication.deal_keys(_COMMITTEE, lambda: secrets.token_bytes(32))
  assert keys['a']['b'] == keys['b']['a']
  assert len({keys['a']['b'], keys['a']['c'], keys['b']['c']}) == 3
  assert {*keys['a']} == {'b', 'c'}


def test_simulated_keys_follow_from_the_seed():
  assert authentication.simulated_keys(_COMMITTEE, seed=3) == _KEYS
  assert authentication.simulated_keys(_COMMITTEE, seed=4) != _KEYS


def test_what_was_sealed_opens():
  assert _keyring('b').open(_sealed()) == messages.Request('a', 2, 's')


@pytest.mark.parametrize(
  'sealed',
  [
    _sealed(by='c', says='a'),  # A member in the name of another.
    _sealed(to='c'),  # Meant for somebody else.
    _sealed(by='b', to='a', says='b'),  # Our own words, sent back.
    _sealed(by='a', says='stranger'),
    _sealed(instance='r2'),  # Of another vote.
    _sealed()[:-1],
    _sealed()[:10],
    b'',
  ],
)
def test_forgeries_are_refused(sealed):
  with pytest.raises(ValueError):
    _keyring('b').open(sealed)


@hypothesis.given(st.integers(0, 8 * len(_sealed()) - 1))
def test_no_bit_can_be_changed(position):
  changed = bytearray(_sealed())
  changed[position // 8] ^= 1 << position % 8
  with pytest.raises(ValueError):
    _keyring('b').open(bytes(changed))


def test_a_vote_convinces_every_other_member():
  vote = _keyring('a').vote('d')
  assert _keyring('b').is_vote('a', 'd', vote)
  assert _keyring('c').is_vote('a', 'd', vote)
  assert len(vote) == 3 * 32


@pytest.mark.parametrize(
  ('voter', 'digest', 'vote'),
  [
    ('a', 'other', _keyring('a').vote('d')),
    ('c', 'd', _keyring('a').vote('d')),
    ('a', 'd', _keyring('a', instance='r2').vote('d')),
    ('a', 'd', _keyring('b').vote('d')),
    ('b', 'd', _keyring('b').vote('d')),  # Nobody shows us our own vote.
    ('stranger', 'd', _keyring('a').vote('d')),
    ('a', 'd', ''),
    ('a', 'd', '\N{SNOWMAN}' * 96),
  ],
)
def test_forged_votes_do_not_count(voter, digest, vote):
  assert not _keyring('b').is_vote(voter, digest, vote)


def test_a_vote_can_be_right_for_some_members_only():
  vote = _keyring('a').vote('d')
  spoiled = vote[:64] + '0' * 32
  assert _keyring('b').is_vote('a', 'd', spoiled)
  assert not _keyring('c').is_vote('a', 'd', spoiled)


def test_no_tag_of_a_message_is_one_of_a_vote():
  """Who gets a message tagged has got no vote."""
  content = b'vote\0r1\0a\0d'
  tag = _keyring('a').seal('b', content)[:16].hex()
  # It would be one, so no message may ever be spelled like this.
  assert _keyring('b').is_vote('a', 'd', '0' * 32 + tag)
  with pytest.raises(ValueError):
    messages.decode('r1', content)


def test_keys_of_clients_outside_the_committee_are_ignored():
  keys = authentication.simulated_keys((*_COMMITTEE, 'outsider'), seed=3)
  receiver = _keyring('b', keys=keys)
  # An outsider that knows the committee casts a vote in its own name.
  outsider = authentication.Keyring(
    'outsider', (*_COMMITTEE, 'outsider'), keys['outsider'], 'r1'
  )
  assert not receiver.is_vote('outsider', 'd', outsider.vote('d'))
  spelled = messages.encode('r1', messages.Request('outsider', 2, 's'))
  with pytest.raises(ValueError, match='no other member'):
    receiver.open(outsider.seal('b', spelled))
  assert receiver.is_vote('a', 'd', _keyring('a', keys=keys).vote('d'))


@pytest.mark.parametrize('key', [{}, {'b': b'short', 'c': b'x' * 32}])
def test_a_key_that_is_missing_or_short_is_an_error(key):
  with pytest.raises(errors.ConfigError, match="'a' needs a key of 32 bytes"):
    authentication.Keyring('a', _COMMITTEE, key, 'r1')
