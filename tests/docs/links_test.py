"""Links between pages: their files and headings exist."""

import functools
import pathlib
import re

import pytest

from tests.testing import programs

_PAGES = sorted(
  path.relative_to(programs.ROOT).as_posix()
  for pattern in ('*.md', 'docs/**/*.md', 'benchmarks/*.md')
  for path in programs.ROOT.glob(pattern)
)
_FENCED = re.compile(r'^```.*?^```', re.MULTILINE | re.DOTALL)
_LINK = re.compile(r'\]\(([^()\s]+)\)')
_HEADING = re.compile(r'^#+ +(.+)$', re.MULTILINE)


def _text(page: pathlib.Path) -> str:
  return _FENCED.sub('', page.read_text())


@functools.cache
def _anchors(page: pathlib.Path) -> set[str]:
  """Returns the anchors of a page's headings, as GitHub makes them."""
  headings = (_LINK.sub(']', one) for one in _HEADING.findall(_text(page)))
  return {
    re.sub(r'[^\w\- ]', '', one.lower()).replace(' ', '-') for one in headings
  }


@pytest.mark.parametrize('page', _PAGES)
def test_links_lead_somewhere(page):
  source = programs.ROOT / page
  broken = []
  for link in _LINK.findall(_text(source)):
    if '://' in link or link.startswith('mailto:'):
      continue
    path, _, anchor = link.partition('#')
    target = (source.parent / path).resolve() if path else source
    if not target.exists() or (anchor and anchor not in _anchors(target)):
      broken.append(link)
  assert not broken
