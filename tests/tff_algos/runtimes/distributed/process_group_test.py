"""Collectives between real processes, and what is left when one is lost."""

import contextlib
import json
import signal
import socket
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import group_program, groups, patience, ports
from tff_algos.core import errors
from tff_algos.runtimes.distributed import process_cluster, process_group

_PROGRAM = 'tests.testing.group_program'
# TensorFlow's heartbeats miss a process that stands still after ten seconds.
_SECONDS_TO_THE_END = 30.0


def _assert_nothing_is_left(group):
  for program in group.programs:
    assert not program.processes()
    assert not program.temporary_files()


@pytest.fixture(
  scope='module', params=[2, pytest.param(4, marks=pytest.mark.verify)]
)
def size(request):
  return request.param


@pytest.fixture(scope='module')
def computed(launcher, size):
  group = groups.Group(launcher, size, _PROGRAM, MODE='compute')
  for program in group.wait():
    assert program.returncode == 0, program.stderr
    assert not program.complaints
  _assert_nothing_is_left(group)
  return [json.loads(program.stdout) for program in group.programs]


@pytest.mark.slow
def test_all_get_the_same_bits_whenever_they_come(computed):
  for result in computed:
    assert result == computed[0]
  assert computed[0]['sums'][0] == computed[0]['sums'][1]


@pytest.mark.slow
def test_sum_is_that_of_all_up_to_its_order(computed, size):
  terms = [group_program.terms(index) for index in range(size)]
  for name, found in computed[0]['sums'][0].items():
    parts = np.stack([one[name] for one in terms]).astype(np.float64)
    # Each addition rounds once.
    bound = size * np.finfo(np.float32).eps * np.abs(parts).sum(axis=0)
    found = np.reshape(found, bound.shape)
    assert np.all(np.abs(found - parts.sum(axis=0)) <= bound)
  assert computed[0]['sums'][0]['count'] == sum(
    10**6 + index for index in range(size)
  )


@pytest.mark.slow
def test_gather_joins_uneven_shares_in_the_order_of_the_cohort(computed):
  expected = [
    group_program.spell(group_program.rows(num_rows))
    for num_rows in group_program.NUM_ROWS
  ]
  assert computed[0]['gathered'] == expected
  assert computed[0]['gathered_by_shard'] == expected
  assert computed[0]['nothing']


@pytest.mark.slow
def test_agree_gives_the_bits_of_process_0(computed):
  expected = group_program.spell(group_program.values(0))
  assert computed[-1]['agreed'] == expected


def _wait_for_output(group):
  patience.until(
    lambda: all(program.stdout for program in group.programs),
    alive=group.programs,
  )


def _assert_the_others_end(group, lost, words):
  for index, program in enumerate(group.programs):
    if index != lost:
      assert program.wait(_SECONDS_TO_THE_END).returncode == 75
      (line,) = program.complaints
      assert f'{group.name_of(lost)} {words}. Start all processes again' in line


@pytest.mark.slow
@pytest.mark.parametrize(
  ('lost', 'signum', 'words'),
  [
    (0, signal.SIGKILL, 'died or cannot be reached any more'),
    pytest.param(
      2,
      signal.SIGKILL,
      'died or cannot be reached any more',
      marks=pytest.mark.verify,
    ),
    pytest.param(0, signal.SIGINT, 'was interrupted', marks=pytest.mark.verify),
    (1, signal.SIGTERM, 'was interrupted'),
  ],
)
def test_the_others_end_and_name_the_lost(launcher, lost, signum, words):
  group = groups.Group(launcher, 3, _PROGRAM, MODE='loop')
  _wait_for_output(group)
  group.programs[lost].send_signal(signum)
  _assert_the_others_end(group, lost, words)
  group.programs[lost].wait()
  _assert_nothing_is_left(group)


@pytest.mark.slow
def test_a_process_that_falls_silent_is_given_up(launcher):
  running = {}
  for silent in (0, 1):
    group = groups.Group(launcher, 2, _PROGRAM, MODE='loop')
    _wait_for_output(group)
    group.programs[silent].send_signal(signal.SIGSTOP)
    running[silent] = group
  for silent, group in running.items():
    _assert_the_others_end(group, silent, 'does not answer any more')
    group.programs[silent].send_signal(signal.SIGKILL)
    group.programs[silent].wait()
    _assert_nothing_is_left(group)


@pytest.mark.slow
def test_ctrl_c_ends_the_wait_for_the_others(launcher):
  group = groups.Group(launcher, 2, _PROGRAM, MODE='loop')
  group.programs[1].send_signal(signal.SIGKILL)
  waiting = group.programs[0]
  patience.until(lambda: f'Waiting for {group.name_of(1)}.' in waiting.stderr)
  waiting.send_signal(signal.SIGINT)
  assert waiting.wait(_SECONDS_TO_THE_END).returncode == 130
  group.wait()
  _assert_nothing_is_left(group)


class _Calm:
  """Peers of whom none is lost."""

  def check(self):
    pass


@pytest.mark.parametrize(
  ('host', 'is_closed'), [('127.0.0.1', True), ('10.0.0.7', False)]
)
def test_servers_on_loopback_are_closed_to_other_machines(
  monkeypatch, host, is_closed
):
  # Whoever connects comes by another interface than loopback.
  monkeypatch.setattr(socket, 'if_nametoindex', lambda name: 1_000_000)
  port = int(ports.free_addresses(1)[0].split(':')[1])
  with contextlib.ExitStack() as stack:

    def serve(cluster_resolver):
      assert cluster_resolver.task_id == 0
      stack.enter_context(socket.create_server(('', port)))
      time.sleep(0.5)  # TensorFlow waits for the other servers here.

    monkeypatch.setattr(tf.distribute, 'MultiWorkerMirroredStrategy', serve)
    cluster = process_cluster.Cluster((f'{host}:{port}', f'{host}:1'), 0)
    process_group._start_server(cluster, _Calm())
    with pytest.raises(TimeoutError) if is_closed else contextlib.nullcontext():
      socket.create_connection(('127.0.0.1', port), 0.3).close()


def test_other_machines_need_a_trusted_network():
  cluster = process_cluster.Cluster(('10.0.0.7:8000', '10.0.0.8:8000'), 0)
  with pytest.raises(errors.ConfigError, match='TF_CONFIG names 10.0.0.7:8000'):
    with process_group.open_group(cluster, {}, 1.0):
      pass


def test_alone_there_is_nobody_to_ask():
  with process_group.open_group(process_cluster.ALONE, {}, 1.0) as group:
    assert group is process_group.ALONE
    group.check()
    values = {'a': np.arange(3)}
    assert group.reads_all
    assert group.positions(None) == slice(None)
    assert group.sum(values) is values
    assert group.gather([values], None) == [values]
    assert group.agree(values) is values
