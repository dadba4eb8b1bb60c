import pytest

from pipelines.sources import csv, parquet, registry
from tff_algos.core import errors


@pytest.mark.parametrize(
  ('path', 'kind'),
  [
    ('data/t.csv', csv.Csv),
    ('data/t.csv.gz', csv.Csv),
    ('data/t.data', csv.Csv),
    ('data/part-*.parquet', parquet.Parquet),
  ],
)
def test_suffix_says_the_form(path, kind):
  options = {'path': path, 'label_column': 'y', 'feature_columns': ('a',)}
  assert type(registry.create('table', options, 0)) is kind


def test_options_of_csv_are_refused_for_parquet():
  options = {
    'path': 'data/t.parquet',
    'label_column': 'y',
    'feature_columns': ('a',),
    'delimiter': ';',
  }
  with pytest.raises(errors.ConfigError, match='delimiter is of CSV files'):
    registry.create('table', options, 0)
