"""Runs of pytest in copies of the project, each with one mutation or none."""

import collections
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence

from tests.mutations import lists, supervision


class Run:
  """One run of pytest.

  Attributes:
    room: The list that it is made for.
    mutation: None for the code as it is.
    status: Exit status of `supervision.start`.
    seconds: Of wall-clock time.
    output: What pytest said.
  """

  def __init__(
    self,
    room: str,
    tests: Sequence[str],
    limit_seconds: float,
    mutation: lists.Mutation | None = None,
  ):
    self.room = room
    self.mutation = mutation
    self._tests = tests
    self._limit_seconds = limit_seconds

  def start(self, tree: pathlib.Path) -> int:
    """Mutates the tree; returns the process id of the run's supervisor."""
    self._tree = tree
    if self.mutation is not None:
      path = tree / self.mutation.file
      self._original = path.read_text()
      path.write_text(self.mutation.apply(self._original))
    self._started = time.monotonic()
    return supervision.start(tree, self._tests, self._limit_seconds)

  def finish(self, status: int) -> pathlib.Path:
    """Restores the tree and returns it."""
    self.status = status
    self.seconds = time.monotonic() - self._started
    self.output = (self._tree / supervision.OUTPUT).read_text()
    if self.mutation is not None:
      (self._tree / self.mutation.file).write_text(self._original)
    return self._tree

  @property
  def verdict(self) -> str:
    """Returns what became of the mutation, in a word.

    `'killed'`, `'survived'`, or `'broken'` if pytest neither passed nor failed.
    """
    if self.status in (1, supervision.TIMED_OUT):
      return 'killed'
    return 'survived' if self.status == 0 else 'broken'


def copy_tree(root: pathlib.Path, tree: pathlib.Path) -> None:
  """Copies the files that are tracked, or untracked and not ignored."""
  command = ('git', 'ls-files', '-z', '-co', '--exclude-standard')
  listed = subprocess.check_output(command, cwd=root, text=True)
  for name in {*listed.split('\0')} - {''}:
    if os.path.lexists(root / name):
      (tree / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy2(root / name, tree / name, follow_symlinks=False)


def finished(
  runs: Sequence[Run], trees: Sequence[pathlib.Path]
) -> Iterator[Run]:
  """Yields runs as they end, as many at a time as there are trees."""
  waiting = collections.deque(runs)
  idle = [*trees]
  running = {}
  try:
    while waiting or running:
      while waiting and idle:
        run = waiting.popleft()
        running[run.start(idle.pop())] = run
      pid, status = os.wait()
      run = running.pop(pid)
      idle.append(run.finish(os.waitstatus_to_exitcode(status)))
      yield run
  finally:
    for pid in running:
      os.kill(pid, signal.SIGTERM)
    for pid in running:
      os.waitpid(pid, 0)
