"""Small files and functions: limits on lines of code.

A line of code is one that is neither blank, nor a comment, nor part of a
docstring.
"""

import ast
import functools
import io
import tokenize

from tests.architecture import source_tree

_FILE_LIMITS = {'tff_algos.algorithms': 220, 'binaries': 100}
_FILE_LIMIT = 300
_FUNCTION_LIMIT = 50
# A config is data: one key a line, not steps to follow.
_CONFIG_FUNCTION_LIMIT = 100
_FILES = source_tree.python_files(
  *('tff_algos', 'pipelines', 'binaries', 'configs', 'tests')
)
_NOT_CODE = {
  *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
  *(tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING),
}


@functools.cache
def _code_lines(text: str) -> frozenset[int]:
  """Returns the numbers of the lines that hold code."""
  lines = set()
  for token in tokenize.generate_tokens(io.StringIO(text).readline):
    if token.type not in _NOT_CODE:
      lines.update(range(token.start[0], token.end[0] + 1))
  for node in ast.walk(ast.parse(text)):
    is_documented = isinstance(
      node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    )
    if is_documented and ast.get_docstring(node) is not None:
      docstring = node.body[0]
      lines.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
  return frozenset(lines)


def _functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
  return [
    node
    for node in ast.walk(tree)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
  ]


def _too_long_functions(text: str, limit: int = _FUNCTION_LIMIT) -> list[str]:
  """Returns the long functions; one inside another counts by itself."""
  code = _code_lines(text)
  faults = []
  for function in _functions(ast.parse(text)):
    lines = set(code) & set(range(function.lineno, function.end_lineno + 1))
    for inner in _functions(function)[1:]:
      lines -= set(range(inner.lineno, inner.end_lineno + 1))
    if len(lines) > limit:
      faults.append(f'{function.name}: {len(lines)} lines, at most {limit}')
  return faults


def test_files_are_small():
  faults = []
  for path in _FILES:
    length = len(_code_lines(source_tree.read(path)))
    limit = _FILE_LIMITS.get(source_tree.room_of(path), _FILE_LIMIT)
    if length > limit:
      faults.append(f'{path}: {length} lines of code, at most {limit}')
  assert not faults, '\n'.join(faults)


def test_functions_are_small():
  faults = []
  for path in _FILES:
    is_config = source_tree.room_of(path) == 'configs'
    limit = _CONFIG_FUNCTION_LIMIT if is_config else _FUNCTION_LIMIT
    for fault in _too_long_functions(source_tree.read(path), limit):
      faults.append(f'{path}: {fault}')
  assert not faults, '\n'.join(faults)


def test_what_counts_as_code():
  text = (
    '"""Docstring\n\nover lines."""\n\n# Comment\nx = 1  # code\n\n'
    'def f():\n  """Doc."""\n  return """text\nthat is code"""\n'
  )
  assert _code_lines(text) == {6, 8, 10, 11}


def test_long_function_is_found():
  text = 'def f():\n' + '  x = 1\n' * 50
  assert _too_long_functions(text) == ['f: 51 lines, at most 50']


def test_function_inside_a_function_counts_by_itself():
  body = '    x = 1\n' * (_FUNCTION_LIMIT - 1)
  text = f'def f():\n  def g():\n{body}  return g\n'
  assert not _too_long_functions(text)
