"""One running server for a test module; its access log."""

import json
from collections.abc import Callable
from typing import NamedTuple

import grpc
import httpx
import pytest

from tests.testing import exportable, patience
from tff_algos.serving import models, monitoring, server, server_config

MAX_REQUEST_BYTES = 100_000
MAX_ROWS = 100


class Served(NamedTuple):
  http: httpx.Client
  channel: grpc.Channel


@pytest.fixture(scope='package')
def export_folder(tmp_path_factory):
  return exportable.write_all(tmp_path_factory.mktemp('export'))


@pytest.fixture(scope='module')
def served(export_folder):
  config = server_config.ServerConfig(
    rest_api_port=0,
    port=0,
    max_request_bytes=MAX_REQUEST_BYTES,
    max_rows=MAX_ROWS,
    receive_seconds=1,
  )
  with (
    server.running(models.ModelStore(export_folder), config) as ports,
    httpx.Client(
      base_url=f'http://127.0.0.1:{ports.rest_api_port}', timeout=30
    ) as http,
    grpc.insecure_channel(f'127.0.0.1:{ports.port}') as channel,
  ):
    yield Served(http, channel)


@pytest.fixture
def access_log(monkeypatch) -> Callable[[int], list[dict]]:
  """Returns number of lines -> so many lines of the log, once they are there.

  A client has its answer before the log has it, and pytest's `capfd` loses what
  is written while it is read.
  """
  lines = []
  monkeypatch.setattr(
    monitoring, 'print', lambda line, **_: lines.append(line), raising=False
  )

  def read(number):
    patience.until(lambda: len(lines) >= number)
    return [json.loads(line) for line in lines]

  return read
