"""One computation on a real worker, and what is said when it is no worker."""

from concurrent import futures

import grpc
import pytest
import tensorflow as tf

from tff_algos.core import errors, tff_compat
from tff_algos.runtimes.tff import local_worker, remote_worker, tff_connection

_NUMBER = tff_compat.to_type(tf.TensorSpec([], tf.int32))


def test_computes_on_tensors_and_over_clients():
  double = tff_compat.tensorflow_computation(lambda x: 2 * x, _NUMBER)

  @tff_compat.federated_computation(tff_compat.at_clients(_NUMBER))
  def total(values):
    return tff_compat.federated_sum(values)

  with tff_connection.Connection(local_worker.LocalWorker()) as connection:
    connection.check_version()
    assert connection.invoke('a test', double, 21) == 42
    assert connection.invoke('a test', total, [1, 2, 4]) == 7


def test_server_of_another_kind_is_named():
  """It answers gRPC, but knows nothing of TFF."""
  server = grpc.server(futures.ThreadPoolExecutor(1))
  port = server.add_insecure_port('127.0.0.1:0')
  server.start()
  try:
    other = remote_worker.RemoteWorker(f'127.0.0.1:{port}')
    with tff_connection.Connection(other) as connection:
      with pytest.raises(
        errors.RuntimeFailureError,
        match=rf'a first sum: .* 127.0.0.1:{port} refused .*TFF 0.87',
      ):
        connection.check_version()
  finally:
    server.stop(None)
