"""The loader and the reader that docs/scale.md prints read a published run."""

import re
import shutil

import numpy as np

from tests.testing import programs
from tff_algos.core import cache_folder
from tff_algos.data import dataset as dataset_lib
from tff_algos.stores import mirror as mirror_lib


def test_printed_code_reads_a_published_dataset(
  s3, digits_dataset, tmp_path, monkeypatch
):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
  mirror = mirror_lib.Mirror('s3://bucket/run')
  with mirror.writing():
    shutil.copytree(digits_dataset / 'dataset', mirror.folder / 'dataset')
  page = (programs.ROOT / 'docs' / 'scale.md').read_text()
  loader, reader = re.findall(r'```python\n(.*?)```', page, re.DOTALL)
  printed = {}
  exec(loader, printed)
  exec(reader, printed)
  with dataset_lib.FederatedDataset.open(digits_dataset / 'dataset') as data:
    client = printed['client']
    np.testing.assert_array_equal(
      client.x, data.examples(client.client_id, 'train').x
    )
    assert {*data.client_ids} < printed['clients'].keys()
    for client_id in (data.client_ids[0], data.client_ids[-1]):
      for split in ('train', 'test'):
        expected = data.examples(client_id, split)
        assert expected.num_examples
        x, y = printed['examples'](client_id, split)
        np.testing.assert_array_equal(x, expected.x)
        np.testing.assert_array_equal(y, expected.y)
