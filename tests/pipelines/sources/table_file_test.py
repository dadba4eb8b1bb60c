import pytest

from pipelines.sources import csv, parquet, registry


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
