"""Loaded stores; one running server for a test module; its access log."""

import json
from collections.abc import Callable

import pytest

from tests.testing import exportable, patience, servers
from tff_algos.serving import models, monitoring, server_config

MAX_REQUEST_BYTES = 100_000
MAX_ROWS = 100


@pytest.fixture(scope='package')
def export_folder(tmp_path_factory):
  return exportable.write_all(tmp_path_factory.mktemp('export'))


@pytest.fixture(scope='package')
def full_store(export_folder):
  """All models, loaded; only to be read."""
  store = models.ModelStore(export_folder)
  store.load_newest()
  return store


@pytest.fixture(scope='package')
def small_store(export_folder, tmp_path_factory):
  """One model, loaded, where it does not matter which; only to be read."""
  folder = tmp_path_factory.mktemp('one_model')
  (folder / 'anna').symlink_to(export_folder / 'anna')
  store = models.ModelStore(folder)
  store.load_newest()
  return store


@pytest.fixture(scope='module')
def served(full_store):
  config = server_config.ServerConfig(
    rest_api_port=0,
    port=0,
    max_request_bytes=MAX_REQUEST_BYTES,
    max_rows=MAX_ROWS,
    receive_seconds=1,
  )
  with servers.running(full_store, config) as opened:
    yield opened


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
