"""Addresses of stores of every kind."""

import pytest

from tests.testing import s3_server


@pytest.fixture(params=['memory', 's3', 'gs'])
def address(request):
  """An empty folder of a store, of a real server's unless in memory."""
  if request.param != 'memory':
    request.getfixturevalue(request.param)
  return f'{request.param}://{s3_server.BUCKET}/{request.node.name}'
