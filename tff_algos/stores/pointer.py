"""Pointer of a published folder: one small object, written conditionally.

`<address>/HEAD.json` names the snapshot that readers see, and the mirror that
may replace it, until when: its lease. Every write replaces exactly the content
that was read or written before, so that of two writers one is refused, and a
process whose lease was taken over cannot publish any more, however late it
wakes up. Clocks decide only when a lease may be taken over, and not of a holder
that renews it.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from tff_algos.core import errors, sealed_json
from tff_algos.stores import objects as objects_lib
from tff_algos.stores import repetition

NAME = 'HEAD.json'
# Duration of a lease unless it is renewed.
_LEASE_SECONDS = 60.0
_RENEWAL_SECONDS = _LEASE_SECONDS / 3

_SCHEMA_VERSION = 1

_Result = TypeVar('_Result')


class Head(NamedTuple):
  """Content of the pointer.

  Attributes:
    number: Number of writes, which makes each content unique.
    snapshot: SHA-256 of the published snapshot; None before the first.
    holder: Holder of the lease; None for none.
    until: End of the lease, seconds since 1970.
  """

  number: int = 0
  snapshot: str | None = None
  holder: str | None = None
  until: float = 0.0


def read(
  objects: objects_lib.Objects,
) -> tuple[Head, objects_lib.Tag | None]:
  """Returns the pointer and its state; an empty one and None without any.

  Raises:
    DataError: If it is damaged.
  """
  try:
    content, tag = objects.read_tagged(NAME)
  except FileNotFoundError:
    return Head(), None
  try:
    values = json.loads(content)
    if values.pop('checksum') != sealed_json.checksum(values):
      raise ValueError('its checksum differs')
    if values.pop('schema_version') != _SCHEMA_VERSION:
      raise ValueError('it is of another version of this program')
    return Head(**values), tag
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise errors.DataError(
      f'{objects.address}/{NAME} cannot be read: {error!r}. Restore it from '
      'a backup, or take another address'
    ) from None


def follow(
  objects: objects_lib.Objects, use: Callable[[str | None], _Result]
) -> _Result:
  """Calls a function with the published snapshot, None before the first.

  If an object of it is missing because another snapshot was published
  meanwhile, calls it again with that one.

  Raises:
    DataError: If an object of the published snapshot is missing.
  """
  head, _ = read(objects)
  while True:
    try:
      return use(head.snapshot)
    except FileNotFoundError as error:
      before, (head, _) = head, read(objects)
      if head.snapshot == before.snapshot:
        raise missing(error) from None


def missing(error: FileNotFoundError) -> errors.DataError:
  """Returns the error of a published snapshot whose object is missing."""
  return errors.DataError(
    f'{error}, which the published snapshot needs. Publish the folder again '
    'from its origin'
  )


class Lease:
  """Exclusive right to publish at an address, until it is taken over."""

  def __init__(self, objects: objects_lib.Objects, holder: str) -> None:
    """Takes the lease.

    Args:
      objects: Objects of the address.
      holder: Name of the mirror, unique; only one process may use it at a time.

    Raises:
      WorkdirBusyError: If another mirror holds it.
    """
    self._objects = objects
    self._holder = holder
    self._lock = threading.Lock()
    # Writes that may have been done, although no response came.
    self._unsure: list[Head] = []
    self._head, self._tag = read(objects)
    left = self._head.until - time.time()
    if self._head.holder not in (None, holder):
      number = self._head.number
      if left <= 0:
        # By this machine's clock. A holder with another one still renews it.
        time.sleep(1.5 * _RENEWAL_SECONDS)
        self._head, self._tag = read(objects)
      was_renewed = self._head.holder and self._head.number != number
      if left > 0 or was_renewed:
        raise errors.WorkdirBusyError(
          f'{objects.address} is in use by {self._head.holder}; wait for it, '
          f'or take another address. If that process was killed, its lease '
          f'ends in {left if left > 0 else _LEASE_SECONDS:.0f} seconds'
        )
    self.renew()

  @property
  def snapshot(self) -> str | None:
    """Returns the published snapshot."""
    return self._head.snapshot

  def renew(self) -> None:
    """Prolongs the lease.

    Raises:
      WorkdirBusyError: If it was taken over.
    """
    self._write()

  def publish(self, snapshot: str) -> None:
    """Makes a snapshot the published one.

    Raises:
      WorkdirBusyError: If the lease was taken over: nothing is published.
    """
    self._write(snapshot=snapshot)

  def release(self) -> None:
    """Ends the lease, unless it was taken over."""
    with contextlib.suppress(errors.WorkdirBusyError):
      self._write(holder=None, until=0.0)

  def renewing(self) -> contextlib.AbstractContextManager[None]:
    """Renews the lease by a thread within the block."""
    return repetition.repeated(self.renew, _RENEWAL_SECONDS)

  def _write(self, **changes: Any) -> None:
    with self._lock:
      while True:
        try:
          return self._write_once(changes)
        except objects_lib.ChangedError:
          now, tag = read(self._objects)
        if now not in self._unsure:
          raise errors.WorkdirBusyError(
            f'{self._objects.address} was taken over by '
            f'{now.holder or "another"}: nothing more is published there by '
            'this process. Run it again when the other one has ended'
          )
        self._head, self._tag = now, tag

  def _write_once(self, changes: Mapping[str, Any]) -> None:
    head = self._head._replace(
      number=self._head.number + 1,
      **{
        'holder': self._holder,
        'until': time.time() + _LEASE_SECONDS,
        **changes,
      },
    )
    content = {'schema_version': _SCHEMA_VERSION, **head._asdict()}
    spelled = json.dumps(sealed_json.seal(content), indent=2) + '\n'
    self._unsure.append(head)
    self._tag = self._objects.write_if(NAME, spelled.encode(), self._tag)
    self._head = head
    self._unsure.clear()
