"""The figures of docs/testing.md are those that were recorded."""

import json
import re

from tests.testing import programs, suite

_PAGE = (programs.ROOT / 'docs/testing.md').read_text()


def test_scores_are_those_of_the_last_mutation_check():
  scores = json.loads(
    (programs.ROOT / 'tests/mutations/scores.json').read_text()
  )
  rows = re.findall(
    r'^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) % \|', _PAGE, re.M
  )
  assert {row[0] for row in rows} == scores.keys()
  for room, *numbers in rows:
    row = scores[room]
    expected = [row['mutations'], row['killed'], row['explained']]
    assert [*map(int, numbers)] == [*expected, round(100 * row['score'])]


def test_cpu_seconds_are_those_recorded():
  for tier in ('test', 'verify'):
    (said,) = re.findall(rf'`make {tier}`: ([\d,]+) CPU seconds', _PAGE)
    total = sum(suite.recorded(tier).values())
    assert int(said.replace(',', '')) == round(total)
