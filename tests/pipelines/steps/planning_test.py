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
