"""A function in a process of its own; memory of processes, sizes of files."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import psutil

from benchmarks import errors

_ROOT = pathlib.Path(__file__).parents[1]
_SAMPLE_SECONDS = 0.1
_TAIL_CHARACTERS = 3000
_MIB = 2**20


def run(
  module: str, function: str, arguments: Sequence[Any], folder: pathlib.Path
) -> dict[str, Any]:
  """Calls a function in a process, which is ended with all its children.

  Args:
    module: Module of the function.
    function: Function of strings, whose result is JSON-ready.
    arguments: Its arguments.
    folder: Folder of temporary files.

  Returns:
    Its result; `peak_memory_mib`, the largest sum of private memory of the
    process and its children; `machine_idle_percent`.

  Raises:
    BenchmarkError: If the function fails.
  """
  script = f"""
import json, sys, {module}
print(json.dumps({module}.{function}(*sys.argv[1:])))
"""
  process = subprocess.Popen(
    [sys.executable, '-c', script, *map(str, arguments)],
    cwd=_ROOT,
    # Dask leaves a folder where temporary files go.
    env={'TF_CPP_MIN_LOG_LEVEL': '3', **os.environ, 'TMPDIR': str(folder)},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # Ctrl-C reaches this process, which ends the other with its workers.
    start_new_session=True,
  )
  peak, done = [0], threading.Event()
  sampler = threading.Thread(
    target=_sample_memory, args=(process.pid, peak, done)
  )
  sampler.start()
  psutil.cpu_times_percent(None)
  try:
    said, trouble = process.communicate()
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done.set()
    sampler.join()
  idle = psutil.cpu_times_percent(None).idle
  if process.returncode:
    raise errors.BenchmarkError(
      f'{module}.{function} failed:\n{trouble[-_TAIL_CHARACTERS:]}'
    )
  return {
    **json.loads(said.splitlines()[-1]),
    'peak_memory_mib': round(peak[0] / _MIB),
    'machine_idle_percent': idle,
  }


def peak_mib(pid: int) -> float:
  """Returns the largest resident size of a process so far, MiB."""
  status = pathlib.Path(f'/proc/{pid}/status').read_text()
  return int(status.split('VmHWM:')[1].split()[0]) / 1024


def size_mib(path: pathlib.Path) -> float:
  """Returns the size of a file, or of all files of a folder, MiB."""
  files = [path] if path.is_file() else path.rglob('*')
  return sum(file.stat().st_size for file in files if file.is_file()) / _MIB


def _sample_memory(pid: int, peak: list[int], done: threading.Event) -> None:
  """Keeps the largest sum of private memory of a process and its children.

  Pages of mapped files are left out: the system takes them back when it must.
  """
  while not done.wait(_SAMPLE_SECONDS):
    total = 0
    try:
      top = psutil.Process(pid)
      for process in (top, *top.children(recursive=True)):
        memory = process.memory_info()
        total += memory.rss - memory.shared
    except psutil.NoSuchProcess:
      continue
    peak[0] = max(peak[0], total)
