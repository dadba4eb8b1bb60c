import dataclasses

import pytest

from tff_algos.core import errors
from tff_algos.experiments.production import gate_record

_GROUP = gate_record.Group(
  'overall', 24, 0.9, 0.7, 0.2, 0.15, 0.25, 0.01, 'refused'
)
_RECORD = gate_record.GateRecord(
  blessed=False,
  reasons=('overall: it fell', 'slow'),
  round_num=30,
  config_hash='c',
  dataset_version='d',
  candidate={'cluster_models': 'a1'},
  champion={'cluster_models': 'a0'},
  champion_version=4,
  checks={'predicts in time': False},
  score='accuracy',
  groups=(_GROUP,),
  num_left_out=1,
)


def test_record_reads_back(tmp_path):
  assert gate_record.read(tmp_path) is None
  gate_record.write(tmp_path, _RECORD)
  assert gate_record.read(tmp_path) == _RECORD


@pytest.mark.parametrize('content', ['', '[]', '{}', '{"groups": [1]}'])
def test_damaged_record(tmp_path, content):
  (tmp_path / 'gate.json').write_text(content)
  with pytest.raises(errors.DataError, match='gate.json is damaged'):
    gate_record.read(tmp_path)


def test_refusal_names_every_reason_and_remedy():
  with pytest.raises(
    errors.NotApprovedError,
    match='round 30: overall: it fell; slow.* a false alarm raise .* binaries.gate again; after bad',
  ):
    gate_record.require_blessed(_RECORD)
  gate_record.require_blessed(dataclasses.replace(_RECORD, blessed=True))


def test_text_has_figures_and_bounds():
  lines = gate_record.as_text(_RECORD).splitlines()
  assert lines[0] == 'round 30 against version 4: refused'
  assert lines[1] == '  predicts in time: refused'
  row = dict(zip(lines[2].split(), lines[3].split(), strict=False))
  assert row['units'] == '24' and row['champion'] == '0.9000'
  assert '+0.1500 to +0.2500' in lines[3] and lines[3].endswith('refused')
  assert lines[4:] == ['  clients that cannot be compared: 1']
  first = dataclasses.replace(
    _RECORD, blessed=True, champion_version=None, groups=()
  )
  assert gate_record.as_text(first).startswith(
    'round 30 without a champion: blessed'
  )
