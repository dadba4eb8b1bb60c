"""`docs/sources.md`: its tables are complete, and its example works."""

import dataclasses
import re
import sys
import types

import numpy as np
import pytest

from pipelines import build_dataset
from pipelines.sources import client_database, registry, table
from tests.testing import programs, raw_data
from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib

_TEXT = (programs.ROOT / 'docs' / 'sources.md').read_text()
# Options that a row names by these words, in place of one by one.
_SHARED = {
  'those of databases': client_database.Options,
  'those of tables': table.Options,
}


def _row(name):
  """Returns the table row of a source."""
  (row,) = re.findall(rf'^\| `{name}` \| [^`|].*$', _TEXT, re.MULTILINE)
  return row


@pytest.mark.parametrize('name', sorted(registry.SOURCES))
def test_table_has_every_option_with_its_default(name):
  options, _ = registry.SOURCES[name]
  documented = dict(
    re.fullmatch(r'(\w+)(?:=(.*))?', option).groups()
    for option in re.findall(r'`([^`]+)`', _row(name).split('|')[-2])
  )
  fields = {field.name: field for field in dataclasses.fields(options)}
  for words, shared in _SHARED.items():
    if words in _row(name):
      assert issubclass(options, shared)
      for field in dataclasses.fields(shared):
        if field.name not in ('folder', 'file'):
          del fields[field.name]
  assert documented.keys() == fields.keys()
  for key, default in documented.items():
    if default is not None:
      assert repr(fields[key].default) == default


def test_options_of_databases_are_described():
  for field in dataclasses.fields(client_database.Options):
    if field.name not in ('folder', 'file'):
      assert f'`{field.name}={field.default!r}`' in _TEXT


def test_no_other_source_is_described():
  names = re.findall(r'^\| `(\w+)` \| [^`|]', _TEXT, re.MULTILINE)
  assert sorted(names) == sorted(registry.SOURCES)


@pytest.fixture(name='npz')
def _npz(monkeypatch):
  """The module that the document shows, registered as it says."""
  (code,) = re.findall(r'```python\n("""Arrays.*?)```', _TEXT, re.DOTALL)
  module = types.ModuleType('pipelines.sources.npz')
  monkeypatch.setitem(sys.modules, module.__name__, module)
  exec(compile(code, 'docs/sources.md', 'exec'), module.__dict__)
  entry = registry.Entry(module.Options, module.Npz)
  monkeypatch.setitem(registry.SOURCES, 'npz', entry)


def _config(folder, **more):
  options = {'folder': str(folder), 'file': 'a.npz', 'num_classes': 3} | more
  return raw_data.digits_config(
    source={'name': 'npz', 'options': options},
    distributions={},
    partition={'law': 'natural'},
    sizes={},
    splits={'held_out_fraction': 0.0},
  )


def test_example_builds_a_dataset(npz, tmp_path):
  x = np.arange(30, dtype=np.float32).reshape(10, 3)
  y = np.arange(10) % 3
  client = np.array(['ann', 'bob'])[np.arange(10) // 5]
  np.savez(tmp_path / 'a.npz', x=x, y=y, client=client)
  result = build_dataset.build(_config(tmp_path), tmp_path / 'dataset')
  with dataset_lib.FederatedDataset.open(result.path) as dataset:
    assert dataset.client_ids == ('ann', 'bob')
    for i in range(2):
      examples = dataset.examples(dataset.client_ids[i], 'train')
      order = np.argsort(examples.x[:, 0])
      np.testing.assert_array_equal(examples.x[order], x[5 * i : 5 * i + 5])
      np.testing.assert_array_equal(examples.y[order], y[5 * i : 5 * i + 5])


@pytest.mark.parametrize(
  ('content', 'text'),
  [
    (None, 'no raw data'),
    (b'', 'no archive of'),
    (b'PK\x03\x04', 'no archive'),
  ],
)
def test_example_says_what_is_wrong_with_a_file(npz, tmp_path, content, text):
  if content is not None:
    (tmp_path / 'a.npz').write_bytes(content)
  with pytest.raises(errors.DataError, match=text):
    build_dataset.build(_config(tmp_path), tmp_path / 'dataset')


def test_example_has_strict_options(npz, tmp_path):
  with pytest.raises(errors.ConfigError, match='num_classes'):
    _config(tmp_path, num_classes=1)
