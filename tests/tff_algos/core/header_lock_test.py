import ast
import io

import numpy as np


def test_numpy_parses_headers_as_syntax_trees(monkeypatch):
  # The reason for the lock: if this fails, the lock can go.
  parse, parsed = ast.literal_eval, []

  def record(text):
    parsed.append(text)
    return parse(text)

  monkeypatch.setattr(ast, 'literal_eval', record)
  file = io.BytesIO()
  np.save(file, np.zeros((2, 3)))
  file.seek(0)
  np.load(file)
  assert ['(2, 3)' in text for text in parsed] == [True]
