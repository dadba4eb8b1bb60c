"""Addresses that lead nowhere, and workers that are somebody else's."""

import socket

import pytest

from tff_algos.core import errors
from tff_algos.runtimes.tff import local_worker, remote_worker


def test_address_where_nobody_answers_is_named():
  with socket.socket() as held:
    held.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{held.getsockname()[1]}'
    silent = remote_worker.RemoteWorker(address, start_timeout_seconds=0.5)
    with pytest.raises(
      errors.LostProcessError, match=f'{address} does not answer within 0.5'
    ):
      silent.start()


def test_close_leaves_the_worker_running():
  with local_worker.LocalWorker() as ours:
    remote = remote_worker.RemoteWorker(ours.address)
    remote.start()
    remote.close()
    remote.check_alive()
    assert remote.address == ours.address
    ours.check_alive()
