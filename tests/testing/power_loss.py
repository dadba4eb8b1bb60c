"""Every state of a folder that a power loss could leave, for tests of recovery.

A function runs once and is recorded: before every file operation that Python
reports (`sys.addaudithook`) and at every `os.fsync`, the folder is compared
with what it was. Writes between two operations count as one. From the record
follow the states that POSIX allows after a crash at each of these moments:

- Data of a file are safe when the file was fsynced. Until then all, half or
  none of what was written since may be on the disk.
- A new, removed or renamed name is safe when its folder was fsynced (a rename:
  the folder it moves to). Until then it may be there or not, in any order with
  other names and with the data: a rename may be safe before the file's data.
  A rename itself is atomic.

Of all combinations those are tried that tell mistakes apart: all is on the
disk; only what is safe; all names without the data; and each unsafe item alone
missing, or alone there. It is the model of ALICE (Pillai et al., "All File
Systems Are Not Created Equal", OSDI 2014) with a crash at every operation, as
in CrashMonkey (Mohan et al., "Finding Crash-Consistency Bugs with Bounded
Black-Box Crash Testing", OSDI 2018).
"""

import contextlib
import os
import pathlib
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

# Of a folder: name -> inode. Of a file: its bytes.
_Content = dict[str, int] | bytes
# Inode -> content, of everything below the recorded folder.
_Image = dict[int, _Content]
# (inode of a folder, name) -> inode there, None if the name goes.
_Change = dict[tuple[int, str], int | None]

# Audit events of what changes a folder; `os.replace` is `os.rename`, too.
_OPERATIONS = (
  'open',
  'os.link',
  'os.mkdir',
  'os.remove',
  'os.rename',
  'os.rmdir',
  'os.truncate',
)


class State(NamedTuple):
  """What a power loss may leave.

  Attributes:
    tree: Path in the folder -> content; None of a folder.
    is_finished: Whether the function had returned.
    story: When it happened and what is missing, for people.
  """

  tree: dict[str, bytes | None]
  is_finished: bool
  story: str


class _Moment(NamedTuple):
  """The folder at one operation, and the inode that it fsynced, if any."""

  operation: str
  image: _Image
  synced: int | None


def check(
  folder: pathlib.Path,
  function: Callable[[], Any],
  recover: Callable[[pathlib.Path, bool], Any],
  ignored_fsync: int | None = None,
) -> int:
  """Calls `recover` on every state that a power loss in `function` leaves.

  Args:
    folder: The function changes files in here only; may hold some already,
      which count as safe.
    function: What is interrupted. Its fsyncs do not reach the disk.
    recover: Is given a state's folder, and whether the function had returned;
      raises if nothing sensible can be made of it.
    ignored_fsync: Number of an fsync, from 0, that counts as left out, to see
      that somebody misses it.

  Returns:
    How many fsyncs the function did.
  """
  moments, num_fsyncs = record(folder, function, ignored_fsync)
  place = folder.with_name(f'{folder.name}.after_power_loss')
  for state in states(moments):
    _write(place, state.tree)
    try:
      with mock.patch.object(os, 'fsync', lambda descriptor: None):
        recover(place, state.is_finished)
    except BaseException as error:
      error.add_note(state.story)
      raise
    finally:
      shutil.rmtree(place)
  return num_fsyncs


def needed_fsyncs(
  run: Callable[[int | None], int], errors: tuple[type[Exception], ...]
) -> list[bool]:
  """Returns for each fsync of a function whether a check fails without it.

  Args:
    run: Makes a new folder and returns `check` with its `ignored_fsync`.
    errors: What a failing check raises.
  """
  needed = []
  for number in range(run(None)):
    try:
      run(number)
      needed.append(False)
    except errors:
      needed.append(True)
  return needed


def record(
  folder: pathlib.Path,
  function: Callable[[], Any],
  ignored_fsync: int | None = None,
) -> tuple[list[_Moment], int]:
  """Returns the moments of a function's run, and how many fsyncs it did."""
  moments: list[_Moment] = []
  num_fsyncs = 0
  with contextlib.ExitStack() as stack:
    held: set[int] = set()

    def look(operation: str, synced: int | None = None) -> None:
      moments.append(_Moment(operation, _image(folder, held, stack), synced))

    def fsync(descriptor: int) -> None:
      nonlocal num_fsyncs
      is_ignored = num_fsyncs == ignored_fsync
      num_fsyncs += 1
      with _listener.paused():
        inode = os.fstat(descriptor).st_ino
        look('before fsync')
        look('fsync', None if is_ignored else inode)

    stack.enter_context(mock.patch.object(os, 'fsync', fsync))
    look('start')
    with _listener.listening(look):
      function()
    look('end')
  return moments, num_fsyncs


def states(moments: list[_Moment]) -> Iterator[State]:
  """Yields the distinct states that a power loss may leave, in time."""
  disk = _Disk(moments[0].image)
  root = next(iter(moments[0].image))
  seen = set()
  for number, moment in enumerate(moments):
    disk.advance(moment.image)
    if moment.synced is not None:
      disk.sync(moment.synced)
    is_finished = number == len(moments) - 1
    for missing, image in disk.images():
      tree = _tree(image, root)
      key = (is_finished, *tree.items())
      if key not in seen:
        seen.add(key)
        story = f'power loss at {number} ({moment.operation}): {missing}'
        yield State(tree, is_finished, f'{story}; left {_spell(tree)}')


class _Disk:
  """What is safe, and what is not yet."""

  def __init__(self, image: _Image):
    self._now = dict(image)
    self._data = {i: c for i, c in image.items() if isinstance(c, bytes)}
    self._names = {i: c for i, c in image.items() if isinstance(c, dict)}
    # (home, change): made safe by an fsync of its home; in order of time.
    self._pending: list[tuple[int, _Change]] = []

  def advance(self, image: _Image) -> None:
    """Takes over what a program sees now."""
    gone, come = [], {}
    for folder in {*self._folders(self._now), *self._folders(image)}:
      old = self._now.get(folder, {})
      new = image.get(folder, {})
      for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
          if name in new:
            come[folder, name] = new[name]
          else:
            gone.append((folder, name, old[name]))
    for (folder, name), inode in come.items():
      change: _Change = {(folder, name): inode}
      for source in [one for one in gone if one[2] == inode]:
        change[source[:2]] = None
        gone.remove(source)
      self._pending.append((folder, change))
    for folder, name, _ in gone:
      self._pending.append((folder, {(folder, name): None}))
    removed = dict.fromkeys(self._folders(self._now), {})
    self._now = {**self._now, **removed, **image}

  def sync(self, inode: int) -> None:
    """Makes a file's data or a folder's names safe."""
    content = self._now.get(inode)
    if isinstance(content, bytes):
      self._data[inode] = content
    waiting = []
    for home, change in self._pending:
      if home == inode:
        _apply(self._names, change)
        # What the same name was before does not come back.
        waiting = [
          (other, {k: v for k, v in older.items() if k not in change})
          for other, older in waiting
        ]
      else:
        waiting.append((home, change))
    self._pending = [(home, change) for home, change in waiting if change]

  def images(self) -> Iterator[tuple[str, _Image]]:
    """Yields what may be on the disk now, and how it differs."""
    files = [
      inode
      for inode, content in self._now.items()
      if isinstance(content, bytes) and content != self._data.get(inode, b'')
    ]
    names = list(range(len(self._pending)))
    yield 'all is there', self._image(names, files)
    yield 'only what is safe', self._image([], [])
    yield 'all names, only safe data', self._image(names, [])
    for one in files:
      others = [file for file in files if file != one]
      yield 'data of one missing', self._image(names, others)
      for half in (0, 1):
        image = self._image(names, others)
        image[one] = self._torn(one, half)
        yield 'data of one torn', image
    for one in names:
      others = self._without(one)
      yield 'a name missing', self._image(others, files)
      yield 'one name alone', self._image(self._up_to(one), [])

  def _folders(self, image: _Image) -> list[int]:
    return [inode for inode, content in image.items() if type(content) is dict]

  def _without(self, lost: int) -> list[int]:
    """Returns the pending changes but for one, and those that build on it."""
    touched, kept = self._items(lost), list(range(lost))
    for number in range(lost + 1, len(self._pending)):
      if self._items(number) & touched:
        touched |= self._items(number)
      else:
        kept.append(number)
    return kept

  def _up_to(self, last: int) -> list[int]:
    """Returns a pending change and those that it builds on, in time."""
    touched, kept = self._items(last), [last]
    for number in reversed(range(last)):
      if self._items(number) & touched:
        touched |= self._items(number)
        kept.insert(0, number)
    return kept

  def _items(self, number: int) -> set[Any]:
    """Returns the names and inodes of a pending change."""
    change = self._pending[number][1]
    return {*change, *change.values()} - {None}

  def _torn(self, inode: int, half: int) -> bytes:
    """Returns none or half of what was written since a file was safe."""
    content, safe = self._now[inode], self._data.get(inode, b'')
    kept = len(safe) if content.startswith(safe) else 0
    return content[: kept + half * (len(content) - kept) // 2]

  def _image(self, names: list[int], files: list[int]) -> _Image:
    image: _Image = {i: dict(content) for i, content in self._names.items()}
    for number in names:
      _apply(image, self._pending[number][1])
    for inode, content in self._now.items():
      if isinstance(content, bytes):
        is_there = inode in files
        image[inode] = content if is_there else self._data.get(inode, b'')
    return image


def _apply(names: dict[int, Any], change: _Change) -> None:
  for (folder, name), inode in change.items():
    entries = names.setdefault(folder, {})
    if inode is None:
      entries.pop(name, None)
    else:
      entries[name] = inode


def _image(
  folder: pathlib.Path, held: set[int], stack: contextlib.ExitStack
) -> _Image:
  """Reads a folder; keeps all of it open, so that no inode is used again."""
  found = os.stat(folder)
  image: _Image = {found.st_ino: {}}
  folders = [(folder, found.st_ino)]
  while folders:
    path, inode = folders.pop()
    names = image[inode]
    for entry in os.scandir(path):
      status = entry.stat(follow_symlinks=False)
      names[entry.name] = status.st_ino
      if status.st_ino not in held:
        held.add(status.st_ino)
        stack.callback(os.close, os.open(entry.path, os.O_RDONLY))
      if stat.S_ISDIR(status.st_mode):
        image[status.st_ino] = {}
        folders.append((pathlib.Path(entry.path), status.st_ino))
      else:
        image[status.st_ino] = pathlib.Path(entry.path).read_bytes()
  return image


def _tree(image: _Image, root: int) -> dict[str, bytes | None]:
  tree = {}

  def walk(folder: int, prefix: str) -> None:
    for name, inode in sorted(image.get(folder, {}).items()):
      content = image.get(inode, {})
      is_file = isinstance(content, bytes)
      tree[prefix + name] = content if is_file else None
      if not is_file:
        walk(inode, f'{prefix}{name}/')

  walk(root, '')
  return tree


def _spell(tree: dict[str, bytes | None]) -> str:
  return ', '.join(
    f'{path}/' if content is None else f'{path} ({len(content)} bytes)'
    for path, content in tree.items()
  )


def _write(folder: pathlib.Path, tree: dict[str, bytes | None]) -> None:
  folder.mkdir()
  for path, content in tree.items():
    if content is None:
      (folder / path).mkdir()
    else:
      (folder / path).write_bytes(content)


class _Listener:
  """Tells one function of file operations; an audit hook cannot be removed."""

  def __init__(self):
    self._tell: Callable[[str], None] | None = None
    self._is_installed = False

  @contextlib.contextmanager
  def listening(self, tell: Callable[[str], None]) -> Iterator[None]:
    if not self._is_installed:
      sys.addaudithook(self._hook)
      self._is_installed = True
    self._tell = tell
    try:
      yield
    finally:
      self._tell = None

  @contextlib.contextmanager
  def paused(self) -> Iterator[None]:
    tell, self._tell = self._tell, None
    try:
      yield
    finally:
      self._tell = tell

  def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
    tell = self._tell
    if tell is None or event not in _OPERATIONS:
      return
    if event != 'open' or arguments[2] & (os.O_WRONLY | os.O_RDWR):
      with self.paused():
        tell(f'{event} {arguments[0]}')


_listener = _Listener()
