import pickle

import numpy as np
import pytest

import tff_algos
from tff_algos.data import dataset as dataset_lib


@pytest.fixture(scope='module')
def dataset(digits_dataset):
  with dataset_lib.FederatedDataset.open(digits_dataset / 'dataset') as opened:
    yield opened


@pytest.fixture
def client(dataset):
  return tff_algos.ClientExamples(dataset, dataset.client_ids[1], 'train')


def test_arrays_are_those_of_the_dataset(dataset, client):
  expected = dataset.examples(dataset.client_ids[1], 'train')
  np.testing.assert_array_equal(client.x, expected.x)
  np.testing.assert_array_equal(client.y, expected.y)
  assert len(client) == len(expected.y) > 5


def test_examples_follow_the_protocol_of_pytorch(client):
  """What `torch.utils.data.DataLoader` calls, in this process or another."""
  sent = pickle.loads(pickle.dumps(client))
  for one in (client, sent):
    pairs = [one[i] for i in range(len(one))]
    np.testing.assert_array_equal(np.stack([x for x, _ in pairs]), client.x)
    np.testing.assert_array_equal([y for _, y in pairs], client.y)
    with pytest.raises(IndexError):
      one[len(one)]
  assert (sent.client_id, sent.split) == (client.client_id, 'train')


@pytest.mark.verify
def test_pytorch_loads_batches(client):
  torch = pytest.importorskip('torch')
  loader = torch.utils.data.DataLoader(client, batch_size=4)
  batches = [*loader]
  assert torch.equal(
    torch.cat([x for x, _ in batches]), torch.from_numpy(client.x)
  )
  assert torch.equal(
    torch.cat([y for _, y in batches]), torch.from_numpy(client.y)
  )
  assert batches[0][0].dtype == torch.float32 and len(batches[0][1]) == 4


def test_tf_data_gives_the_same_examples(client):
  x, y = zip(*client.to_tf().as_numpy_iterator(), strict=True)
  np.testing.assert_array_equal(np.stack(x), client.x)
  np.testing.assert_array_equal(y, client.y)
