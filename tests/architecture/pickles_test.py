"""Pickles: where they may be read. The threat model says so."""

import re

from tests.architecture import source_tree

_PICKLE = re.compile(
  r'\bpickle\b(?!d)|\bdill\b|cloudpickle|multiprocessing import connection'
)
_ALLOWED = re.compile(r'allow_pickle *= *(?!False)')


def _lines():
  for path in source_tree.python_files(*source_tree.SOURCE_ROOMS):
    for line in source_tree.read(path).splitlines():
      yield path.as_posix(), line


def test_the_process_of_large_requests_alone_imports_pickle():
  importing = {
    name
    for name, line in _lines()
    if re.match(r'\s*(import|from) ', line) and _PICKLE.search(line)
  }
  assert importing == {'tff_algos/serving/bulk.py'}


def test_no_array_is_loaded_with_pickles():
  assert [one for one in _lines() if _ALLOWED.search(one[1])] == []
