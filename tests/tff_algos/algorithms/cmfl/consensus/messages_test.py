"""Messages survive being spelled; what is no message is refused."""

import hypothesis
import pytest
from hypothesis import strategies as st

from tff_algos.algorithms.cmfl.consensus import messages

_TEXT = st.text(max_size=20)
_MESSAGES = st.one_of(
  st.builds(messages.Request, _TEXT, st.integers(0, 99), _TEXT),
  st.builds(messages.Reply, _TEXT, st.integers(0, 99), _TEXT, _TEXT),
  st.builds(messages.ViewChange, _TEXT, st.integers(0, 99), _TEXT, _TEXT),
  st.builds(
    messages.Decision,
    _TEXT,
    st.integers(0, 99),
    _TEXT,
    st.dictionaries(_TEXT, _TEXT, max_size=3),
  ),
)


@hypothesis.given(_MESSAGES, _TEXT)
def test_decode_returns_what_was_spelled(message, instance):
  spelled = messages.encode(instance, message)
  decoded = messages.decode(instance, spelled)
  assert decoded == message
  assert type(decoded) is type(message)


def test_spelling_by_hand():
  assert messages.encode('r1', messages.Request('a', 0, 's')) == (
    b'{"instance":"r1","kind":"Request","sender":"a","statement":"s","view":0}'
  )


@pytest.mark.parametrize(
  'spelled',
  [
    b'',
    b'\xff\xfe',
    b'[]',
    b'7',
    b'{"kind":"Request"}',
    b'{"kind":"Order","instance":"r1"}',
    b'{"kind":["Request"],"instance":"r1"}',
    b'{"instance":"r2","kind":"Request","sender":"a","statement":"s","view":0}',
    b'{"instance":"r1","kind":"Request","sender":"a","statement":"s"}',
    b'{"instance":"r1","kind":"Request","sender":7,"statement":"s","view":0}',
    b'{"instance":"r1","kind":"Request","sender":"a","statement":"s","view":-1}',
    b'{"instance":"r1","kind":"Request","sender":"a","statement":"s",'
    b'"view":true}',
    b'{"instance":"r1","kind":"Request","sender":"a","statement":"s","view":0,'
    b'"more":1}',
    b'{"instance":"r1","kind":"Decision","sender":"a","statement":"s","view":0,'
    b'"votes":{"a":1}}',
    b'{"instance":"r1","kind":"Decision","sender":"a","statement":"s","view":0,'
    b'"votes":[]}',
    b'[' * 100_000,
  ],
)
def test_what_is_no_message_is_refused(spelled):
  with pytest.raises(ValueError):
    messages.decode('r1', spelled)


@hypothesis.given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(spelled):
  try:
    messages.decode('r1', spelled)
  except ValueError:
    pass
