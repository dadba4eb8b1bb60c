import pytest

from tff_algos.core import errors, sealed_json
from tff_algos.reports.run import lineage_table

_CONTENT = {
  'round_num': 60,
  'dataset': {'version': 'v2', 'as_of': '2026-11-20', 'raw_files': {'a': '1f'}},
  'parent': {'run': '../2026-11-19', 'round_num': 30},
  'config_hash': 'c1',
  'code_version': 'k1',
  'gate': {'blessed': True, 'reasons': [], 'champion_version': 4},
  'releases': [{'export_dir': '../../export', 'version': 5}],
}


def _rows(tmp_path, **changes):
  sealed_json.write(tmp_path / 'lineage.json', {**_CONTENT, **changes})
  return lineage_table.rows(tmp_path)


def test_rows(tmp_path):
  assert lineage_table.rows(tmp_path) == []
  assert _rows(tmp_path) == [
    ('round', '60'),
    ('continues', '../2026-11-19'),
    ('dataset', 'v2'),
    ('as of', '2026-11-20'),
    ('SHA-256 of a', '1f'),
    ('config', 'c1'),
    ('code', 'k1'),
    ('gate', 'blessed against version 4'),
    ('released', 'version 5'),
  ]


@pytest.mark.parametrize(
  ('gate', 'text'),
  [
    (None, 'not asked'),
    ({'blessed': False, 'reasons': ['a', 'b']}, 'refused: a; b'),
    # Of a private run.
    ({'blessed': False}, 'refused: see gate.json'),
    (
      {'blessed': True, 'reasons': [], 'champion_version': None},
      'blessed, without a champion',
    ),
  ],
)
def test_verdicts(tmp_path, gate, text):
  assert dict(_rows(tmp_path, gate=gate))['gate'] == text


@pytest.mark.parametrize('content', ['', '[]', '{}'])
def test_damaged_file(tmp_path, content):
  (tmp_path / 'lineage.json').write_text(content)
  with pytest.raises(errors.DataError, match='lineage.json is damaged'):
    lineage_table.rows(tmp_path)
