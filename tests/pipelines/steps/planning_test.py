import numpy as np
import pytest

from pipelines.steps import planning


@pytest.mark.parametrize('num_clients', [1, 2, 7, 24, 100])
@pytest.mark.parametrize('num_shards', [1, 2, 5, 7])
def test_shards_hold_all_clients_once(num_clients, num_shards):
  members = [
    client
    for shard in range(num_shards)
    for client in planning.clients_of(shard, num_clients, num_shards)
  ]
  assert members == list(range(num_clients))
  for shard in range(num_shards):
    clients = np.array(planning.clients_of(shard, num_clients, num_shards), int)
    found = planning.shard_of(clients, num_clients, num_shards)
    assert np.all(found == shard)


def test_products_of_clients_and_shards_do_not_overflow():
  client = np.array([planning.NOBODY, 0, 2**21 - 1], np.int32)
  found = planning.shard_of(client, 2**21, 2**12)
  np.testing.assert_array_equal(found, [-1, 0, 2**12 - 1])
