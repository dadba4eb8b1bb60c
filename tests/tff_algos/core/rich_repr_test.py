"""Representations as text and as HTML."""

from tff_algos.core import rich_repr


class _Thing(rich_repr.Described):
  def description(self):
    return 'Thing <1>', {'size': 3, 'parts': '<a> & b'}


def test_text_has_title_and_facts():
  assert repr(_Thing()) == '<Thing <1>; size: 3, parts: <a> & b>'


def test_html_is_escaped():
  page = _Thing()._repr_html_()
  assert '<b>Thing &lt;1&gt;</b>' in page
  assert '&lt;a&gt; &amp; b</td>' in page
  assert page.count('<tr>') == 2
