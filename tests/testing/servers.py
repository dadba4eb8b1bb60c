"""A server of models with a client of each of its ports."""

import contextlib
from collections.abc import Generator
from typing import NamedTuple

import grpc
import httpx

from tff_algos.serving import models, server, server_config


class Served(NamedTuple):
  http: httpx.Client
  channel: grpc.Channel


@contextlib.contextmanager
def running(
  store: models.ModelStore, config: server_config.ServerConfig
) -> Generator[Served]:
  """Runs both servers, and keeps their clients, while the context lasts."""
  with (
    server.running(store, config) as ports,
    httpx.Client(
      base_url=f'http://127.0.0.1:{ports.rest_api_port}', timeout=60
    ) as http,
    grpc.insecure_channel(f'127.0.0.1:{ports.port}') as channel,
  ):
    yield Served(http, channel)
