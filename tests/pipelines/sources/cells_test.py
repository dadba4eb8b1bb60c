import datetime
import decimal

import pytest

from pipelines.sources import cells
from tff_algos.core import errors


@pytest.mark.parametrize(
  ('options', 'cell', 'problem'),
  [
    ({}, '1e30', None),
    ({'maximum': 120.0}, '120', None),
    ({'maximum': 120.0}, '1e30', "column 'age': above 120, got '1e30'"),
    ({'minimum': 0.0}, -0.5, "column 'age': below 0, got -0.5"),
    ({}, 'nan', "column 'age': not a finite number, got 'nan'"),
    ({}, 'old', "column 'age': not a finite number, got 'old'"),
    ({}, '1_000', "column 'age': not a finite number, got '1_000'"),
    ({}, ' ', "column 'age': empty"),
    ({}, None, "column 'age': empty"),
    ({'nullable': True}, None, None),
    ({'nullable': True, 'minimum': 1.0}, '0', "column 'age': below 1, got '0'"),
    ({'type': 'integer'}, '3.0', None),
    ({'nullable': True}, float('nan'), None),
    ({'type': 'text', 'allowed': ('3',)}, 3.0, None),
    ({'type': 'integer'}, '3.5', "column 'age': not an integer, got '3.5'"),
    ({'type': 'time'}, '2026-11-20T06:00+01:00', None),
    (
      {'type': 'time'},
      '20.11.2026',
      "column 'age': not a number, date or time, got '20.11.2026'",
    ),
    ({'type': 'text', 'allowed': ('a', 'b')}, ' a', None),
    (
      {'type': 'text', 'allowed': ('a', 'b')},
      'c',
      "column 'age': not one of the allowed values, got 'c'",
    ),
  ],
)
def test_cells_that_violate_the_schema(options, cell, problem):
  found = cells.Column('age', **options).find_problem(cell)
  assert (None if found is None else str(found)) == problem


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'type': 'float'}, "one of 'number', 'integer', 'time', 'text'"),
    ({'minimum': 2.0, 'maximum': 1.0}, '2.0 and 1.0'),
    ({'minimum': float('nan')}, 'at most maximum'),
    ({'type': 'text', 'minimum': 1.0}, "type 'text' takes no minimum"),
    ({'allowed': ()}, 'at least one value'),
  ],
)
def test_schema_that_contradicts_itself(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    cells.Column('age', **options)


@pytest.mark.parametrize(
  ('cell', 'time'),
  [
    ('12.5', 12.5),
    (7, 7.0),
    ('1970-01-02', 86400.0),
    ('1970-01-01T01:00:00+01:00', 0.0),
    (datetime.datetime(1970, 1, 1, 0, 0, 5), 5.0),
    (datetime.date(1970, 1, 2), 86400.0),
    ('inf', None),
    ('noon', None),
    (None, None),
  ],
)
def test_times(cell, time):
  assert cells.parse_time(cell) == time


def test_cells_that_json_cannot_express_become_text():
  day = datetime.date(2026, 11, 20)
  assert [cells.to_json(cell) for cell in (1, None, float('nan'), day)] == [
    *(1, None, 'nan', '2026-11-20'),
  ]
  assert cells.to_json(decimal.Decimal('1.5')) == '1.5'
  assert cells.to_json(bytes(5000)) == '<5000 bytes>'


@pytest.mark.parametrize(
  ('cell', 'text'),
  [
    (7, '7'),
    (7.0, '7'),
    (-0.0, '0'),
    (7.5, '7.5'),
    (float('nan'), ''),
    (float('inf'), 'inf'),
    (b' ann', 'ann'),
    ('ann ', 'ann'),
    ('7.0', '7.0'),
    (None, ''),
    (True, 'True'),
  ],
)
def test_names(cell, text):
  assert cells.spell(cell) == text
