"""`docs/cmfl.md`: its example works, and its table is what holds."""

import re

import numpy as np

from tests.testing import programs
from tff_algos.algorithms.cmfl.consensus import behaviours, quorum

_TEXT = (programs.ROOT / 'docs' / 'cmfl.md').read_text()


def test_example_works():
  (code,) = re.findall(r'```python\n(.*?)```', _TEXT, re.DOTALL)
  names = {'new_weights': np.ones(3), 'selected_ids': ['frank', 'grace']}
  exec(compile(code, 'docs/cmfl.md', 'exec'), names)
  agreed = names['agreed']
  assert agreed.value == names['proposal']
  assert agreed.suspects == {'eve'}


def test_table_is_what_holds():
  rows = re.findall(r'^\| (\d) \|(.*)\|$', _TEXT, re.MULTILINE)
  assert [int(size) for size, _ in rows] == [1, 2, 3, 4, 5, 6, 7]
  for size, cells in rows:
    size = int(size)
    faults = quorum.tolerated_faults(size)
    expected = [
      quorum.required_replies(size),
      quorum.required_votes(size),
      faults,
      # Whoever is alone agrees with itself.
      faults + 1 if size > 1 else '',
      quorum.required_votes(size),
    ]
    assert [cell.strip() for cell in cells.split('|')] == [*map(str, expected)]


def test_all_behaviours_are_named():
  for name in {*behaviours.NAMES} - {'honest'}:
    assert f'`{name}`' in _TEXT
