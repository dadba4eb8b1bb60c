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
