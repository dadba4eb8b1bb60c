import os
import signal
import threading
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf

from tests.testing import patience, running_sum, toys
from tff_algos.core import errors
from tff_algos.runtimes.tff import local_worker, tff_config, tff_runtime

_CLIENTS = ([1.0], [2.0, 3.0], [], [4.0, 5.0, 6.0])
_PATIENCE_SECONDS = 30.0


def _workers() -> list[psutil.Process]:
  """Returns the TFF workers that this process has started."""
  return [
    child
    for child in psutil.Process().children(recursive=True)
    if child.name().startswith('worker_binary')
  ]


def _run(runtime, algorithm, indices=(3, 0, 2)):
  call = running_sum.phase_call(indices, np.arange(len(indices)))
  return running_sum.run_call(
    runtime, algorithm, running_sum.source(*_CLIENTS), call, total=10.0
  )


def _work_for_ever(message, client_input, client_state, data, seed):
  """Turns and turns, in the graph."""
  turns = tf.while_loop(
    lambda i: i >= 0.0, lambda i: tf.math.floormod(i + 1.0, 1e6), [message]
  )
  return running_sum.client_work(
    turns[0], client_input, client_state, data, seed
  )


def test_phase_by_hand_and_the_worker_ends():
  algorithm = running_sum.algorithm()
  with tff_runtime.TffRuntime(algorithm, len(_CLIENTS)) as runtime:
    assert len(_workers()) == 1
    output = _run(runtime, algorithm)
    again = _run(runtime, algorithm, indices=[1])
  assert not _workers()
  assert output.server_state.total == 10 + 25 + 11 + 10
  assert output.server_state.mean == (3 * 25 + 1 * 11 + 0 * 10) / 4
  np.testing.assert_array_equal(output.server_state.said, [11, 0, 10, 25])
  # Each client has its own, whatever TFF's order is.
  states = toys.states_of(output, [3, 0, 2])
  np.testing.assert_array_equal(states.last, [[25, 0], [11, 1], [10, 2]])
  np.testing.assert_array_equal(states.num_turns, [1, 1, 1])
  assert output.client_metrics['x'].total == 16
  assert output.num_invalid == 0
  assert again.server_state.total == 25


@pytest.mark.parametrize('signum', [signal.SIGKILL, signal.SIGSEGV])
def test_worker_that_dies_in_the_middle_ends_the_run_with_its_words(signum):
  algorithm = running_sum.algorithm(client_work=_work_for_ever)

  def kill_when_busy():
    (worker,) = _workers()
    while sum(worker.cpu_times()[:2]) < busy_seconds:
      time.sleep(0.05)
    worker.send_signal(signum)

  with tff_runtime.TffRuntime(algorithm, len(_CLIENTS)) as runtime:
    (worker,) = _workers()
    busy_seconds = sum(worker.cpu_times()[:2]) + 0.5
    killer = threading.Thread(target=kill_when_busy)
    killer.start()
    with pytest.raises(errors.RuntimeFailureError) as caught:
      _run(runtime, algorithm)
    killer.join(_PATIENCE_SECONDS)
  assert f'signal {signal.Signals(signum).name}' in str(caught.value)
  assert 'It said:' in str(caught.value)
  assert not _workers()


def test_worker_that_died_before_is_noticed():
  algorithm = running_sum.algorithm()
  with tff_runtime.TffRuntime(algorithm, len(_CLIENTS)) as runtime:
    _run(runtime, algorithm)
    (worker,) = _workers()
    worker.kill()
    patience.until(lambda: patience.is_gone(worker.pid))
    with pytest.raises(errors.LostProcessError, match='SIGKILL'):
      _run(runtime, algorithm)


def test_graph_that_fails_names_round_and_phase():
  def work(message, client_input, client_state, data, seed):
    with tf.control_dependencies([tf.debugging.assert_less(client_input, 1.0)]):
      message = tf.identity(message)
    return running_sum.client_work(
      message, client_input, client_state, data, seed
    )

  algorithm = running_sum.algorithm(client_work=work)
  with tff_runtime.TffRuntime(algorithm, len(_CLIENTS)) as runtime:
    with pytest.raises(
      errors.RuntimeFailureError, match=r"round 1, phase 'add'.*name=debug"
    ):
      _run(runtime, algorithm)
    assert len(_workers()) == 1
  assert not _workers()


def test_no_worker_is_left_after_an_error_or_ctrl_c():
  algorithm = running_sum.algorithm(client_work=_work_for_ever)
  with pytest.raises(ZeroDivisionError):
    with tff_runtime.TffRuntime(algorithm, len(_CLIENTS)):
      raise ZeroDivisionError
  assert not _workers()
  with pytest.raises(KeyboardInterrupt):
    with tff_runtime.TffRuntime(algorithm, len(_CLIENTS)) as runtime:
      threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGINT]).start()
      _run(runtime, algorithm)
  assert not _workers()


def test_two_remote_workers_agree_with_one():
  """Also when the cohort is smaller than the list of workers."""
  algorithm = running_sum.algorithm()
  clients = running_sum.source(*_CLIENTS, [7.0])
  calls = [
    running_sum.phase_call(indices, np.arange(len(indices)))
    for indices in ((3, 0, 2), (1,), (4, 3, 2, 1, 0))
  ]
  with (
    local_worker.LocalWorker() as first,
    local_worker.LocalWorker() as second,
  ):
    outputs = []
    for addresses in ((first.address,), (first.address, second.address)):
      config = tff_config.TffConfig(workers=addresses)
      with tff_runtime.TffRuntime(algorithm, 5, config) as runtime:
        outputs.append(
          [
            tuple(running_sum.run_call(runtime, algorithm, clients, call, 10.0))
            for call in calls
          ]
        )
    first.check_alive()
    second.check_alive()
  for one, other in zip(
    *(tf.nest.flatten(output) for output in outputs), strict=True
  ):
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_remote_worker_that_dies_is_named():
  algorithm = running_sum.algorithm()
  with (
    local_worker.LocalWorker() as first,
    local_worker.LocalWorker() as second,
  ):
    config = tff_config.TffConfig(workers=(first.address, second.address))
    with tff_runtime.TffRuntime(algorithm, len(_CLIENTS), config) as runtime:
      _run(runtime, algorithm)
      os.kill(second.pid, signal.SIGKILL)
      with pytest.raises(
        errors.RuntimeFailureError, match=f'{second.address} does not answer'
      ):
        _run(runtime, algorithm)
