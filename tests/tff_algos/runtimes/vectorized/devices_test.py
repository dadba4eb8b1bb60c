"""Several logical CPU devices compute the same as one; unknown ones are named.

Logical devices must be made before TensorFlow starts, so a process of its own
does it.
"""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.testing import programs
from tff_algos.core import errors
from tff_algos.runtimes.vectorized import devices

_PROGRAM = """
import tensorflow as tf

cpu = tf.config.list_physical_devices('CPU')[0]
tf.config.set_logical_device_configuration(
  cpu, [tf.config.LogicalDeviceConfiguration()] * 3
)
from tests.testing import running_sum, toys
from tff_algos.runtimes.vectorized import vectorized_runtime

algorithm = running_sum.algorithm()
call = running_sum.phase_call([3, 0, 2, 1], [0.1, 1.7, 2.3, 0.9])
outputs = []
for names in (('CPU:0',), ('CPU:0', 'CPU:1', 'CPU:2')):
  config = vectorized_runtime.VectorizedConfig(clients_per_block=1)
  with vectorized_runtime.VectorizedRuntime(
    algorithm, 4, config, names
  ) as runtime:
    used = set()
    graphs = runtime._graphs_of(algorithm.phases[running_sum.PHASE])
    graph = graphs.client_work(1, 1)
    run = graph.run
    graph.run = lambda bound: (
      used.add(tf.constant(0.0).device[-5:]), run(bound)
    )[1]
    outputs.append(
      running_sum.run_call(
        runtime,
        algorithm,
        running_sum.source([1.0], [2.0, 3.0], [], [4.0, 5.0, 6.0]),
        call,
      )
    )
  assert used == set(names), used
toys.assert_outputs_close(*outputs, rtol=1e-6)
print('same')
"""


@pytest.mark.verify
def test_three_devices_agree_with_one():
  ended = subprocess.run(
    [sys.executable, '-c', _PROGRAM],
    cwd=programs.ROOT,
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
  assert ended.stdout.strip() == 'same', ended.stderr


@pytest.fixture
def threads(monkeypatch):
  """Threads that would be set, of an operation and between operations."""
  found = []
  for kind in ('intra', 'inter'):
    name = f'set_{kind}_op_parallelism_threads'
    monkeypatch.setattr(tf.config.threading, name, found.append)
  return found


@pytest.mark.parametrize(('text', 'num_threads'), [('', None), ('3', 3)])
def test_threads_are_those_of_the_variable_or_the_cores(
  text, num_threads, threads, monkeypatch
):
  monkeypatch.setenv('TF_NUM_INTEROP_THREADS', text)
  devices.prepare_threads()
  assert threads == [1, num_threads or len(os.sched_getaffinity(0))]


@pytest.mark.parametrize('text', ['all', '-1', '1.5'])
def test_a_variable_that_is_no_number_of_threads_is_refused(
  text, threads, monkeypatch
):
  monkeypatch.setenv('TF_NUM_INTEROP_THREADS', text)
  with pytest.raises(
    errors.ConfigError, match=f'TF_NUM_INTEROP_THREADS is {text!r}'
  ):
    devices.prepare_threads()
  assert not threads


def test_unknown_device_is_named_with_those_that_exist():
  with pytest.raises(
    errors.ConfigError, match=r"names 'CPU:7', .* there are: CPU:0"
  ):
    devices.choose(('CPU:0', 'CPU:7'))


@pytest.mark.skipif(
  bool(tf.config.list_physical_devices('GPU')), reason='this machine has a GPU'
)
def test_without_a_gpu_the_cpu_computes():
  devices.prepare_gpus(512)
  assert devices.choose(()) == ('CPU:0',)


@pytest.mark.skipif(
  not tf.config.list_physical_devices('GPU'), reason='this machine has no GPU'
)
def test_a_gpu_is_preferred():
  assert devices.choose(())[0] == 'GPU:0'
