"""Mirrors: local copies of folders that are published in object stores.

Programs work in a mirror as in any folder. One that writes holds the lease of
the address meanwhile, and publishes the mirror as a new snapshot after each
checkpoint and at its end; what a killed one had published is what another
machine goes on with.

    <cache>/stores/<hash of the address>/<name>         the folder
                                        /<name>.base    snapshot it started from
                                        /<name>.<host>.holder  the mirror's name

`<cache>` is `core.cache_folder`. A file that is missing in the folder was
deleted, as by a program that was killed before it published: the next writer
publishes the deletion. So a mirror is removed as a whole, never a part of it.
"""

import contextlib
import functools
import hashlib
import pathlib
import secrets
import shutil
import socket
from collections.abc import Callable, Generator

from absl import logging

from tff_algos.core import cache_folder, durable, errors, folder_lock
from tff_algos.stores import objects as objects_lib
from tff_algos.stores import pointer, repetition, snapshots

_FOLLOW_SECONDS = 5.0
# Readers and writers of one machine take turns; a writer works for longer.
_PATIENCE_SECONDS = 10.0

_BASE = 'base'
_HOLDER = 'holder'
_SCRATCH = 'fetching'


def publication(address: str) -> tuple[str, str]:
  """Returns where a folder is published, and its name there.

  That is at the nearest parent that has a pointer, as of `<workdir>/export`,
  unless files are published at the address itself. Without any it is the
  address, and the name empty.

  Args:
    address: Address of the folder.

  Raises:
    DataError: If a pointer is damaged.
    InfrastructureError: If the store cannot be reached.
  """
  own = objects_lib.Objects(address)
  outer = own.address
  while outer.count('/') > 2:
    outer = outer.rpartition('/')[0]
    # Credentials may be for a part of the bucket alone.
    with contextlib.suppress(objects_lib.ForbiddenError):
      if pointer.read(objects_lib.Objects(outer))[1] is None:
        continue
      if pointer.follow(own, functools.partial(snapshots.read, own)).files:
        break
      return outer, own.address.removeprefix(f'{outer}/')
  return own.address, ''


def place_of(address: str, kind: str) -> pathlib.Path:
  """Returns the parent of a local copy; may not exist.

  Args:
    address: Address of the folder.
    kind: What is copied of it, as one address may have several copies.
  """
  key = hashlib.sha256(f'{address} {kind}'.encode()).hexdigest()[:16]
  return cache_folder.path() / 'stores' / key


class Mirror:
  """Local copy of a published folder.

  Attributes:
    address: Address of the folder.
    folder: The local copy.
  """

  def __init__(self, address: str, part: str = '') -> None:
    """Makes an empty mirror, or takes the one that is there.

    Args:
      address: Address of the folder.
      part: Folder in it that is mirrored alone; empty for all.
    """
    self._objects = objects_lib.Objects(address)
    self._part = part
    # The last snapshot that was fetched, and its content here.
    self._fetched: tuple[str, snapshots.Snapshot] | None = None
    self.address = self._objects.address
    self._place = place_of(self.address, part)
    self.folder = self._place / (part or self.address).rpartition('/')[2]
    durable.make_folder(self._place)

  def fetch(self, patience_seconds: float = _PATIENCE_SECONDS) -> bool:
    """Makes the folder equal to the published snapshot, if it is of another.

    What programs of this machine changed in it and have not published stays.

    Args:
      patience_seconds: How long to wait for another process of this machine.

    Returns:
      Whether there is a published snapshot.

    Raises:
      DataError: If an object is missing or damaged.
      WorkdirBusyError: If another process of this machine works in the folder.
    """

    def fetch(snapshot: str | None) -> bool:
      self._fetch(snapshot)
      return snapshot is not None

    with self._locked(patience_seconds):
      return pointer.follow(self._objects, fetch)

  @contextlib.contextmanager
  def following(self) -> Generator[None]:
    """Fetches at the start, and what is published later within the block.

    Raises:
      DataError: If nothing is published.
    """
    if not self.fetch():
      raise errors.DataError(
        f'nothing is published at {self.address}; mend the address, or give it '
        'as --workdir to binaries.export first'
      )
    # Impatient, so that the end of the block does not wait.
    with repetition.repeated(lambda: self.fetch(0.0), _FOLLOW_SECONDS):
      yield

  @contextlib.contextmanager
  def writing(self) -> Generator[Callable[[], None]]:
    """Takes the lease and fetches; yields what publishes the folder.

    It is also published at the end.

    Also a block that fails publishes: the folder is in a state from which the
    program goes on.

    Raises:
      DataError: If an object that this mirror lacks is missing or damaged.
      WorkdirBusyError: If another process is writing, here or elsewhere.
      InfrastructureError: If the store cannot be reached. What was not
        published stays in the mirror, and is published by the next writer here
        unless another machine has published meanwhile.
    """
    with self._locked(_PATIENCE_SECONDS):
      lease = pointer.Lease(self._objects, self._name())
      with _at_end(lease.release), lease.renewing():
        try:
          self._fetch(lease.snapshot)
        except FileNotFoundError as error:
          raise pointer.missing(error) from None
        publisher = snapshots.Publisher(self._objects, self.folder)
        publish = functools.partial(self._publish, lease, publisher)
        with _at_end(publish):
          yield publish

  def _publish(
    self, lease: pointer.Lease, publisher: snapshots.Publisher
  ) -> None:
    try:
      known = snapshots.read(self._objects, lease.snapshot)
    except (errors.DataError, FileNotFoundError):
      known = snapshots.Snapshot()  # Everything is uploaded again.
    snapshot = publisher.upload(known)
    if snapshot != lease.snapshot:
      lease.publish(snapshot)
      self._remember(snapshot)
      logging.info('Published %s', self.address)
      # What is published stays so, as where the bucket forbids to delete.
      try:
        snapshots.remove_unused(self._objects, snapshot)
      except errors.InfrastructureError as error:
        logging.warning('Objects that no snapshot needs are left: %s', error)

  def _fetch(self, snapshot: str | None) -> None:
    if self._base() == (snapshot or '') and self.folder.is_dir():
      return
    if snapshot is None:
      shutil.rmtree(self.folder, ignore_errors=True)
      durable.make_folder(self.folder)
    else:
      content = snapshots.read(self._objects, snapshot).part(self._part)
      # A training that publishes its checkpoints changes no served model.
      if (self._base(), content) != self._fetched or not self.folder.is_dir():
        self._beside(_BASE).unlink(missing_ok=True)
        durable.sync(self._place)
        snapshots.fetch(
          self._objects, content, self.folder, self._beside(_SCRATCH)
        )
      self._fetched = (snapshot, content)
    self._remember(snapshot or '')

  def _beside(self, kind: str) -> pathlib.Path:
    # Never the folder itself, whatever its name is.
    return self.folder.with_name(f'{self.folder.name}.{kind}')

  def _base(self) -> str | None:
    try:
      return self._beside(_BASE).read_text()
    except FileNotFoundError:
      return None

  def _remember(self, snapshot: str) -> None:
    with durable.replacing(self._beside(_BASE)) as file:
      file.write(snapshot)

  def _name(self) -> str:
    # Machines that share a cache share no lease.
    path = self._beside(f'{socket.gethostname()}.{_HOLDER}')
    if not path.exists():
      with durable.replacing(path) as file:
        file.write(f'{socket.gethostname()} ({secrets.token_hex(4)})')
    return path.read_text()

  def _locked(
    self, patience_seconds: float
  ) -> contextlib.AbstractContextManager[object]:
    return folder_lock.exclusive(
      self._place,
      f'another process of this machine works in {self.address}',
      patience_seconds,
    )


@contextlib.contextmanager
def _at_end(function: Callable[[], object]) -> Generator[None]:
  """Calls a function after the block, also after one that fails.

  The error of a block is not hidden by one of the function, which is logged.
  """
  try:
    yield
  except BaseException:
    try:
      function()
    except (errors.UserError, OSError) as error:
      logging.error('%s', error)
    raise
  function()
