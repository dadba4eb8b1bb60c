import errno
import os
import resource
import socket
import threading

import numpy as np
import pytest

from tff_algos.runtimes.pjrt.worker import frames

_ARRAYS = [
  np.arange(7, dtype=np.float32).reshape(1, 7),
  np.array([True, False, True]),
  np.zeros((0, 3), np.int32),
  np.array(5, np.int64),
  np.random.default_rng(0).normal(size=(300, 700)),
]


@pytest.fixture
def pair():
  ours, theirs = socket.socketpair()
  with ours, theirs:
    yield ours, theirs


def test_header_and_arrays_arrive_whole_and_in_order(pair):
  header = {'request': 'run', 'names': ['a', 'ü'], 'long': 'x' * 1_000_000}

  def send():
    frames.send(pair[0], header, _ARRAYS)
    frames.send(pair[0], {'request': 'next'})

  thread = threading.Thread(target=send)
  thread.start()
  received, arrays = frames.receive(pair[1])
  assert frames.receive(pair[1]) == ({'request': 'next'}, [])
  thread.join()
  assert received == header
  for one, sent in zip(arrays, _ARRAYS, strict=True):
    assert (one.dtype, one.shape) == (sent.dtype, sent.shape)
    np.testing.assert_array_equal(one, sent)


def test_no_descriptor_is_left_open(pair):
  before = len(os.listdir('/proc/self/fd'))
  for _ in range(3):
    frames.send(pair[0], {}, _ARRAYS)
    _, arrays = frames.receive(pair[1])
    del arrays
  assert len(os.listdir('/proc/self/fd')) == before


def test_a_closed_side_is_the_end(pair):
  pair[0].close()
  assert frames.receive(pair[1]) is None


def test_an_end_within_a_message_is_an_error(pair):
  pair[0].sendall((100).to_bytes(8, 'little') + b'{"head')
  pair[0].close()
  with pytest.raises(ConnectionError, match='within a message'):
    frames.receive(pair[1])


def test_arrays_without_a_free_descriptor_are_an_error(pair):
  frames.send(pair[0], {}, _ARRAYS)
  limits = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
  try:
    with pytest.raises(OSError) as caught:
      frames.receive(pair[1])
  finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
  assert caught.value.errno == errno.EMFILE
