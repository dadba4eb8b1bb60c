"""`docs/sources.md`: its tables are complete."""

import dataclasses
import re

import pytest

from pipelines.sources import client_database, registry, table
from tests.testing import programs

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
