"""A real MLflow server, from an environment of its own.

The server needs another SQLAlchemy than TFF, so that the lock has MLflow's
client alone.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import metadata

import pytest

from tests.testing import ports

# A Python with MLflow's server, if it is not to be installed by the test.
_PYTHON = 'MLFLOW_PYTHON'
_STARTS_SECONDS = 180


@contextlib.contextmanager
def running(folder: pathlib.Path) -> Iterator[str]:
  """Runs a server with a SQLite database; yields its address.

  Args:
    folder: Where its environment, database, artifacts and log are.
  """
  python = os.environ.get(_PYTHON) or _install(folder / 'environment')
  (place,) = ports.free_addresses(1)
  host, _, port = place.partition(':')
  address = f'http://{place}'
  with open(folder / 'log', 'wb') as log:
    process = subprocess.Popen(
      [
        *(python, '-m', 'mlflow', 'server', '--workers=1'),
        *(f'--host={host}', f'--port={port}'),
        f'--backend-store-uri=sqlite:///{folder}/runs.db',
        f'--artifacts-destination={folder}/artifacts',
      ],
      cwd=folder,
      env={'PATH': os.environ['PATH'], 'HOME': str(folder)},
      stdout=log,
      stderr=log,
      start_new_session=True,  # It has workers, which end with it.
    )
    try:
      _wait(process, address, folder / 'log')
      yield address
    finally:
      os.killpg(process.pid, signal.SIGKILL)
      process.wait()


def _install(folder: pathlib.Path) -> str:
  """Makes an environment with the server of the client's version."""
  version = metadata.version('mlflow-skinny')
  subprocess.run([sys.executable, '-m', 'venv', str(folder)], check=True)
  python = str(folder / 'bin' / 'python')
  found = subprocess.run(
    [python, '-m', 'pip', 'install', '--quiet', f'mlflow=={version}'],
    capture_output=True,
    text=True,
    check=False,
  )
  if found.returncode:
    pytest.skip(
      f'MLflow {version} cannot be installed ({found.stderr[-200:]}); set '
      f'{_PYTHON} to a Python that has it'
    )
  return python


def _wait(
  process: subprocess.Popen[bytes], address: str, log: pathlib.Path
) -> None:
  end = time.monotonic() + _STARTS_SECONDS
  while True:
    assert process.poll() is None, log.read_text()
    assert time.monotonic() < end, log.read_text()
    with contextlib.suppress(urllib.error.URLError, OSError):
      with urllib.request.urlopen(f'{address}/health', timeout=5):
        return
    time.sleep(0.2)
