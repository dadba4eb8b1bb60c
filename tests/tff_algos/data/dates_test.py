import pytest

from tff_algos.core import errors
from tff_algos.data import dates


@pytest.mark.parametrize(
  ('as_of', 'recorded'),
  [
    ('2026-11-20', '2026-11-20'),
    ('2026-11-20T00:00:00+00:00', '2026-11-20'),
    ('20261120T050000', '2026-11-20T050000Z'),
    ('2026-11-20T01:30:00+02:00', '2026-11-19T233000Z'),
    ('2026-11-20T05:00Z', '2026-11-20T050000Z'),
    ('0999-01-01', '0999-01-01'),
    ('0999-01-01T05:00Z', '0999-01-01T050000Z'),
  ],
)
def test_parse(as_of, recorded):
  assert dates.parse(as_of) == recorded
  assert dates.parse(recorded) == recorded


@pytest.mark.parametrize(
  ('as_of', 'words'),
  [
    ('yesterday', "got 'yesterday'"),
    ('', "got ''"),
    ('../../etc', 'must be a date'),
    ('2026-02-30', 'must be a date'),
    ('0001-01-01T00:00:00+01:00', 'must be a date'),
    ('9999-12-31T23:00:00-01:00', 'must be a date'),
    ('2026-11-20T05:00:00.5', 'whole seconds'),
  ],
)
def test_what_is_no_date(as_of, words):
  with pytest.raises(errors.ConfigError, match=words):
    dates.parse(as_of)


def _record(dataset, **versions):
  (dataset / 'as_of').mkdir()
  for name, version in versions.items():
    path = dataset / 'as_of' / name.strip('d').replace('_', '-')
    path.write_text(version + '\n')


def test_version_is_that_of_the_latest_date_up_to_it(tmp_path):
  _record(
    tmp_path,
    **{
      'd2026_11_20': 'midnight',
      'd2026_11_20T050000Z': 'morning',
      'd2026_11_22': 'later',
    },
  )
  assert [
    dates.version_of(tmp_path, dates.find_recorded(tmp_path, as_of))
    for as_of in (
      '2026-11-20',
      '2026-11-20T04:59:59',
      '2026-11-20T05:00:00',
      '2026-11-21',
      '2030-01-01',
    )
  ] == ['midnight', 'midnight', 'morning', 'morning', 'later']
  with pytest.raises(errors.DataError, match='the first is 2026-11-20. Run'):
    dates.find_recorded(tmp_path, '2026-11-19')


def test_files_without_a_date_as_their_name_are_no_records(tmp_path):
  _record(tmp_path, d2026_11_20='midnight')
  for name in ('2026-11-20~', '2026-11-21.bak', '20261121', 'notes.txt'):
    (tmp_path / 'as_of' / name).write_text('no version')
  (tmp_path / 'as_of' / '.ipynb_checkpoints').mkdir()
  assert dates.recorded(tmp_path) == ['2026-11-20']


def test_a_damaged_record(tmp_path):
  _record(tmp_path, d2026_11_20='')
  with pytest.raises(errors.DataError, match='as_of/2026-11-20 is damaged'):
    dates.version_of(tmp_path, '2026-11-20')


def test_without_any_record(tmp_path):
  assert not dates.recorded(tmp_path)
  with pytest.raises(errors.DataError, match='no date is recorded'):
    dates.find_recorded(tmp_path, '2026-11-20')
