"""Tests of the names of TFF that we use; the TFF runtime's tests run them."""

import importlib.util
import signal
import subprocess
import sys
from collections import OrderedDict

import grpc
import pytest
import tensorflow as tf
from absl import flags
from ml_collections import config_dict, config_flags

from binaries import command
from tests.testing import running_sum
from tff_algos.core import tff_compat
from tff_algos.rounds import federated, phase_types

_SPECS = OrderedDict(
  kernel=tf.TensorSpec([2, 3], tf.float32),
  rows=tf.TensorSpec([None], tf.int32),
)


def test_types_and_specs_are_two_spellings_of_the_same():
  type_ = tff_compat.to_type(_SPECS)
  assert str(type_) == '<kernel=float32[2,3],rows=int32[?]>'
  assert tff_compat.to_specs(type_) == _SPECS


def test_placements():
  type_ = tff_compat.to_type(tf.TensorSpec([], tf.bool))
  assert str(tff_compat.at_server(type_)) == 'bool@SERVER'
  assert str(tff_compat.at_clients(type_)) == '{bool}@CLIENTS'


@pytest.fixture(name='default_context')
def _default_context():
  """Returns a function that returns the default context; restores it."""
  stack = tff_compat.tff.framework.get_context_stack()
  before = stack.current
  yield lambda: stack.current
  tff_compat.tff.framework.set_default_context(before)


def test_importing_us_and_building_a_phase_leave_the_default_context(
  default_context,
):
  before = default_context()
  spec = importlib.util.find_spec(tff_compat.__name__)
  spec.loader.exec_module(importlib.util.module_from_spec(spec))
  algorithm = running_sum.algorithm()
  federated.build_federated_phase(
    algorithm.phases[running_sum.PHASE],
    phase_types.check_algorithm(algorithm)[running_sum.PHASE],
  )
  assert default_context() is before


def test_a_program_refuses_to_compute_outside_a_runtime_without_a_process(
  default_context, monkeypatch
):
  before = default_context()
  values = flags.FlagValues()
  monkeypatch.setattr(flags, 'FLAGS', values)
  flags.DEFINE_string('workdir', None, 'None.', flag_values=values)
  command._forbid_hidden_workers()
  config = config_dict.ConfigDict({'runtime': {'name': 'debug'}})
  config_flags.DEFINE_config_dict('config', config, flag_values=values)
  values(['program'])
  command._forbid_hidden_workers()
  assert default_context() is before
  values['config'].value.runtime.name = 'tff'
  command._forbid_hidden_workers()
  add_one = tff_compat.tensorflow_computation(
    lambda x: x + 1, tff_compat.to_type(tf.TensorSpec([], tf.int32))
  )
  with pytest.raises(
    RuntimeError, match='called outside a runtime; .*TffRuntime'
  ):
    add_one(1)


# A gRPC server whose only method never answers.
_SILENT = """
import concurrent.futures, time, grpc
class Handler(grpc.GenericRpcHandler):
  def service(self, details):
    return grpc.unary_unary_rpc_method_handler(lambda *_: time.sleep(60))
server = grpc.server(concurrent.futures.ThreadPoolExecutor(), [Handler()])
print(server.add_insecure_port('127.0.0.1:0'), flush=True)
server.start()
server.wait_for_termination()
"""


def test_a_call_to_a_machine_that_falls_silent_ends(monkeypatch):
  monkeypatch.setattr(tff_compat, '_PING_SECONDS', 0.5)
  monkeypatch.setattr(tff_compat, '_PING_ANSWER_SECONDS', 0.5)
  worker = subprocess.Popen(
    [sys.executable, '-c', _SILENT], stdout=subprocess.PIPE, text=True
  )
  try:
    port = int(worker.stdout.readline())
    with tff_compat.connect(f'127.0.0.1:{port}') as channel:
      grpc.channel_ready_future(channel).result(20)
      call = channel.unary_unary('/any/method').future(b'', timeout=20)
      worker.send_signal(signal.SIGSTOP)
      assert call.code() == grpc.StatusCode.UNAVAILABLE
  finally:
    worker.kill()
    worker.wait()
    worker.stdout.close()
