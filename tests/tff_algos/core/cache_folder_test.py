import pathlib

import pytest

from tff_algos.core import cache_folder


@pytest.mark.parametrize(
  ('chosen', 'expected'),
  [
    ('', pathlib.Path.home() / '.cache/tff_algos'),
    ('~/there', pathlib.Path.home() / 'there'),
    ('here', pathlib.Path.cwd() / 'here'),
  ],
)
def test_the_variable_or_the_usual_folder(chosen, expected, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, chosen)
  assert cache_folder.path() == expected
