"""Import of TensorFlow without its start-up messages.

Its libraries write nine lines to stderr when they are loaded: notes and a
warning on the machine, and three errors about CUDA plugins that register twice,
which TensorFlow 2.14 prints also without a GPU. Notes and warnings are switched
off and the three errors removed; all other errors, also later ones, are shown.
Child processes are silent: they report by exceptions. The environment variable
TF_CPP_MIN_LOG_LEVEL, if set, decides instead.
"""

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
import tempfile
from collections.abc import Generator

_LEVEL = 'TF_CPP_MIN_LOG_LEVEL'
_ERRORS, _NOTHING = '2', '3'
_REGISTERED_TWICE = (
  b'Unable to register cuDNN factory',
  b'Unable to register cuFFT factory',
  b'Unable to register cuBLAS factory',
)


class _Finder(importlib.abc.MetaPathFinder):
  """Finds the package `tensorflow`, for an import without messages."""

  def find_spec(self, fullname, path=None, target=None):
    """Returns the spec of TensorFlow, and None for any other module."""
    del path, target
    if fullname != 'tensorflow':
      return None
    spec = importlib.machinery.PathFinder.find_spec(fullname)
    if spec is not None and spec.loader is not None:
      execute = spec.loader.exec_module

      def execute_quietly(module):
        os.environ[_LEVEL] = _ERRORS  # Read once, while it is imported.
        try:
          with filtered_stderr():
            execute(module)
        finally:
          os.environ[_LEVEL] = _NOTHING

      spec.loader.exec_module = execute_quietly
    return spec


def install() -> None:
  """Makes the first import of TensorFlow quiet, unless the user has a say."""
  if _LEVEL not in os.environ and 'tensorflow' not in sys.modules:
    os.environ[_LEVEL] = _NOTHING
    sys.meta_path.insert(0, _Finder())


@contextlib.contextmanager
def filtered_stderr() -> Generator[None]:
  """Holds what is written to stderr back, and then writes all but the noise."""
  sys.stderr.flush()
  stderr = os.dup(2)
  with tempfile.TemporaryFile() as held:
    os.dup2(held.fileno(), 2)
    try:
      yield
    finally:
      sys.stderr.flush()
      os.dup2(stderr, 2)
      os.close(stderr)
      held.seek(0)
      for line in held:
        if not any(noise in line for noise in _REGISTERED_TWICE):
          os.write(2, line)
