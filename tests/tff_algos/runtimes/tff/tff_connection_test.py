"""The error of a server that is no worker; `tff_runtime_test.py` has workers."""

from concurrent import futures

import grpc
import pytest

from tff_algos.core import errors
from tff_algos.runtimes.tff import remote_worker, tff_connection


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
