"""API pages: they are built, and their links and names lead somewhere."""

import pathlib
import re
import warnings
from urllib import parse

import pytest

import tff_algos
from docs import api_pages
from tests.architecture import source_tree

_LINK = re.compile(r'href="([^"]+)"')
_ID = re.compile(r'id="([^"]+)"')
# But the entry-point group of plug-ins.
_PUBLIC = re.compile(r'`tff_algos\.(?!plugins`)(\w+)')


def _broken_links(folder: pathlib.Path) -> list[str]:
  """Returns the links of pages to files or anchors that do not exist."""
  pages = {path: path.read_text() for path in folder.rglob('*.html')}
  anchors = {path: {*_ID.findall(text)} for path, text in pages.items()}
  broken = []
  for path, text in pages.items():
    for link in _LINK.findall(text):
      if '://' in link or link.startswith('mailto:'):
        continue
      name, _, anchor = parse.unquote(link).partition('#')
      target = (path.parent / name).resolve() if name else path
      if not target.exists() or (anchor and anchor not in anchors[target]):
        broken.append(f'{path.name}: {link}')
  return broken


def _build(names, folder):
  with warnings.catch_warnings():
    # pdoc warns of what it cannot resolve.
    warnings.filterwarnings('error', module='pdoc')
    assert api_pages.build(names, folder).exists()


def test_the_page_of_public_names(tmp_path):
  _build(['tff_algos'], tmp_path)
  page = (tmp_path / 'tff_algos.html').read_text()
  for name in tff_algos.__all__:
    assert f'id="{name}"' in page, name
  assert 'Returns the experiment of a config file.' in page
  assert not _broken_links(tmp_path)


@pytest.mark.slow
@pytest.mark.verify
def test_the_pages_of_all_modules(tmp_path):
  _build(api_pages.module_names(), tmp_path)
  written = {
    path.relative_to(tmp_path).with_suffix('').as_posix()
    for path in tmp_path.rglob('*.html')
  }
  modules = {
    path.with_suffix('').as_posix().removesuffix('/__init__')
    for path in source_tree.python_files('tff_algos', 'pipelines')
  }
  assert modules <= written
  assert not _broken_links(tmp_path)


def test_broken_links_are_found(tmp_path):
  (tmp_path / 'a.html').write_text('<p id="x"><a href="b.html#x"><a href="#y">')
  (tmp_path / 'b.html').write_text('<a href="a.html#x"><a href="c.html">')
  assert sorted(_broken_links(tmp_path)) == [
    'a.html: #y',
    'a.html: b.html#x',
    'b.html: c.html',
  ]


def test_docstrings_name_public_names_that_exist():
  rooms = {
    path.name for path in api_pages._ROOT.joinpath('tff_algos').iterdir()
  }
  for path in source_tree.python_files('tff_algos', 'pipelines', 'binaries'):
    for name in _PUBLIC.findall(source_tree.read(path)):
      assert name in rooms or name in tff_algos.__all__, f'{path}: {name}'
