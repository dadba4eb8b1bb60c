import pickle

import pytest

from pipelines import build_dataset
from pipelines.publishing import published
from tests.testing import published as publishing
from tests.testing import raw_data
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import layout
from tff_algos.data import schema as schema_lib


@pytest.fixture(name='reader', scope='module')
def make_reader(tmp_path_factory):
  path = tmp_path_factory.mktemp('dataset')
  result = build_dataset.build(raw_data.digits_config(), path)
  # Another version becomes the current one.
  build_dataset.build(raw_data.digits_config(seed=4), path)
  return published.Reader(layout.version_folder(path, result.version))


def test_every_client_is_in_one_shard_at_its_position(reader):
  dataset = reader.dataset
  found = []
  for shard in range(2):
    clients = reader.clients(shard)
    assert [client.position for client in clients] == list(range(len(clients)))
    for client in clients:
      assert dataset._shard[dataset._row[client.client_id]] == shard
    found += clients
  by_group = {
    group: tuple(c.client_id for c in found if c.group == group)
    for group in schema_lib.GROUPS
  }
  assert by_group['participating'] == dataset.client_ids
  assert by_group['unseen'] == dataset.unseen_client_ids


def test_the_version_is_the_one_that_was_asked_for(reader):
  assert reader.dataset.manifest['recipe']['seed'] == 3


def test_a_worker_is_sent_the_path_alone(reader):
  reader.clients(0)  # Has everything open.
  sent = pickle.dumps(reader)
  assert len(sent) < 1000
  assert pickle.loads(sent).clients(0) == reader.clients(0)


def test_a_worker_reads_the_version_at_an_address(reader):
  address = 'memory://bucket/read_by_workers'
  publishing.publish(reader.dataset.path.parents[1], address)
  version = reader.dataset.version
  with dataset_lib.FederatedDataset.open(address, version=version) as opened:
    sent = pickle.loads(pickle.dumps(published.Reader.of(opened)))
    assert sent.dataset.version == version != opened.path.parent.name
    assert sent.clients(1) == reader.clients(1)
    client_id = sent.clients(1)[0].client_id
    found = sent.dataset.examples(client_id, 'train')
    expected = reader.dataset.examples(client_id, 'train')
    assert found.x.tobytes() == expected.x.tobytes()
    sent.dataset.close()
  local = published.Reader.of(reader.dataset)
  assert local.dataset.path == reader.dataset.path.resolve()
