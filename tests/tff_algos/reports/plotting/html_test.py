import pathlib
import re

import jinja2
import pytest

from tff_algos.reports.plotting import html


def test_flatten_keeps_the_order_and_names_the_path():
  section = {'b': {'x': 1, 'a': {'k': [2]}}, 'a': {}, 'c': None}
  assert html.flatten(section) == [
    ('b.x', '1'),
    ('b.a.k', '[2]'),
    ('a', '{}'),
    ('c', 'None'),
  ]


def test_pages_share_a_layout_that_may_not_lack_a_value():
  with pytest.raises(jinja2.UndefinedError, match='signature|name'):
    html.render('dataset/card.html.jinja')


def test_columns_of_tables_keep_apart():
  """Cells of any class have padding on both sides, but for the outer ones."""
  layout = pathlib.Path(html.__file__).with_name('layout.html.jinja')
  rules = dict(re.findall(r'\n  ([^{}\n]+) \{([^{}]*)\}', layout.read_text()))
  for cells in ('th, td', '.wide th, .wide td'):
    (sides,) = re.findall(r'padding: [.\d]+rem ([.\d]+)rem;', rules[cells])
    assert float(sides) > 0
  narrower = [
    selector
    for selector, declarations in rules.items()
    if re.search(r'padding-(left|right): 0;', declarations)
  ]
  assert narrower == ['tr > :first-child', 'tr > :last-child']
