"""Execution of the notebooks of docs/notebooks, each in a kernel of its own.

`make notebooks` (`python -m tests.testing.notebooks [NAME ...]`) writes them with
their outputs.
"""

import os
import pathlib
import re
import sys
import tempfile
from unittest import mock

import nbclient
import nbformat
import numpy as np

from tests.testing import programs

FOLDER = programs.ROOT / 'docs' / 'notebooks'
_TIMEOUT_SECONDS = 900
_NUMBER = re.compile(r'-?\d+\.\d+(?:e[+-]\d+)?')


def names() -> list[str]:
  return sorted(path.stem for path in FOLDER.glob('*.ipynb'))


def read(name: str) -> nbformat.NotebookNode:
  return nbformat.read(FOLDER / f'{name}.ipynb', as_version=4)


def execute(name: str) -> nbformat.NotebookNode:
  """Returns a notebook with the outputs of a new kernel in an empty folder.

  Left out: progress bars and warnings (stderr), and the script that Beam adds
  to every notebook that imports it.

  Raises:
    CellExecutionError: If a cell raises an error.
  """
  notebook = read(name)
  metadata = dict(notebook.metadata)
  for cell in _code(notebook):
    cell.outputs, cell.execution_count = [], None
  with tempfile.TemporaryDirectory() as folder:
    work, own = pathlib.Path(folder, 'work'), pathlib.Path(folder, 'jupyter')
    work.mkdir()
    clean = {
      'PYTHONPATH': str(programs.ROOT),
      'JUPYTER_RUNTIME_DIR': str(own),
      'IPYTHONDIR': str(own),
      'TF_CPP_MIN_LOG_LEVEL': '3',
    }
    with mock.patch.dict(os.environ, clean):
      nbclient.NotebookClient(
        notebook,
        timeout=_TIMEOUT_SECONDS,
        record_timing=False,
        resources={'metadata': {'path': str(work)}},
      ).execute()
  notebook.metadata = metadata
  for cell in _code(notebook):
    cell.outputs = [one for one in cell.outputs if _is_kept(one)]
  return notebook


def texts(notebook: nbformat.NotebookNode) -> list[str]:
  """Returns what each code cell printed, and the plain text of its value."""
  return [
    ''.join(
      one.text if one.output_type == 'stream' else one.data['text/plain']
      for one in cell.outputs
    )
    for cell in _code(notebook)
  ]


def check_equal(actual: str, expected: str, tolerance: float) -> None:
  """Checks that texts agree: the words exactly, fractions within a tolerance."""
  words, numbers = zip(
    *((_NUMBER.split(one), _NUMBER.findall(one)) for one in (actual, expected)),
    strict=True,
  )
  bare = [[' '.join(part.split()) for part in one] for one in words]
  assert bare[0] == bare[1], f'{actual}\nis not\n{expected}'
  np.testing.assert_allclose(
    *(np.array(one, float) for one in numbers), rtol=tolerance, atol=tolerance
  )


def _is_kept(output):
  if output.output_type == 'stream':
    return output.name == 'stdout'
  return 'text/plain' in output.data


def _code(notebook):
  return [cell for cell in notebook.cells if cell.cell_type == 'code']


def _main() -> None:
  for name in sys.argv[1:] or names():
    nbformat.write(execute(name), FOLDER / f'{name}.ipynb')


if __name__ == '__main__':
  _main()
