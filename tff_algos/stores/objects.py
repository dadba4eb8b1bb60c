"""Objects of an S3, Google Cloud Storage or in-memory store, by address.

An address is `s3://bucket/prefix`, `gs://bucket/prefix` or, within one process
and for tests, `memory://name/prefix`. Credentials and endpoints come from the
environment, such as AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT_URL.

A failed request (5xx, a torn connection, a stall) is repeated by the client
library; what fails until `_PATIENCE` is an InfrastructureError.
"""

import contextlib
import datetime
import functools
import pathlib
import re
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

from tff_algos.core import errors, extras

SCHEMES = ('s3', 'gs', 'memory')

_ADDRESS = re.compile(r'([a-z][a-z0-9+.-]+)://(.*)', re.DOTALL | re.IGNORECASE)
_PATIENCE = datetime.timedelta(minutes=3)
# An endpoint without TLS is taken if the environment names one.
_CLIENT: Any = {'allow_http': True, 'connect_timeout': '10s', 'timeout': '60s'}
# One request reads at most this, so that its time limit bounds any object.
_PART_BYTES = 16 * 2**20
_NUM_REQUESTS = 3
_Answer = TypeVar('_Answer')
# Stores of `memory://`, by name.
_memory: dict[str, Any] = {}


class Tag(NamedTuple):
  """State of an object, for conditional writes.

  Attributes:
    e_tag: HTTP entity tag.
    version: Version of stores that have one (the generation at `gs://`).
  """

  e_tag: str | None
  version: str | None


class Listed(NamedTuple):
  """Object in a list.

  Attributes:
    written: Time of the last write.
    size: Number of bytes.
    e_tag: HTTP entity tag.
  """

  written: datetime.datetime
  size: int
  e_tag: str | None


class ForbiddenError(errors.InfrastructureError):
  """The credentials do not allow a request."""


class ChangedError(Exception):
  """The object of a conditional write has changed, or exists already."""


def is_address(path: object) -> bool:
  """Returns whether a path is an address rather than a local path.

  Raises:
    ConfigError: If it has a scheme that is not known.
  """
  match = _ADDRESS.fullmatch(path) if isinstance(path, str) else None
  if match and match[1] not in SCHEMES:
    raise errors.ConfigError(
      f'{path}: unknown scheme {match[1]!r}; an object store is '
      f'{", ".join(f"{scheme}://" for scheme in SCHEMES)}, and a local path '
      'has no scheme'
    )
  return match is not None


def check_local(name: str, path: object) -> None:
  """Raises ConfigError if a path is an address, of which `name` takes none."""
  if is_address(path):
    raise errors.ConfigError(
      f'{name} must be a local folder, got the address {path!r}; in an object '
      'store may be --workdir and --export_dir of programs (docs/scale.md)'
    )


class Objects:
  """Objects under an address; their names are relative to it.

  Attributes:
    address: The address, without a final slash.
  """

  def __init__(self, address: str) -> None:
    """Connects lazily: nothing is sent.

    Raises:
      ConfigError: If the address has no bucket or an unknown scheme.
      UserError: If the extra `stores` is not installed.
    """
    scheme, _, rest = address.rstrip('/').partition('://')
    bucket, _, prefix = rest.partition('/')
    if not is_address(address) or not bucket:
      raise errors.ConfigError(
        f'{address!r} is no address of an object store; it must be like '
        's3://bucket/folder'
      )
    with extras.importing('stores', f'{scheme}://'):
      import obstore
      from obstore import exceptions, store

    self.address = f'{scheme}://{rest}'
    self._api = obstore
    self._exceptions = exceptions
    self._prefix = f'{prefix}/' if prefix else ''
    if scheme == 'memory':
      self._store = _memory.setdefault(bucket, store.MemoryStore())
    else:
      self._store = store.from_url(
        f'{scheme}://{bucket}',
        client_options=_CLIENT,
        retry_config={'max_retries': 100, 'retry_timeout': _PATIENCE},
      )

  def read(self, name: str) -> bytes:
    """Returns the content of an object.

    Raises:
      FileNotFoundError: If there is none.
    """
    return self.read_tagged(name)[0]

  def read_tagged(self, name: str) -> tuple[bytes, Tag]:
    """Returns content and state of an object.

    Raises:
      FileNotFoundError: If there is none.
    """
    return self._repeat(functools.partial(self._read_once, name))

  def _read_once(self, name: str) -> tuple[bytes, Tag]:
    with self._requesting(name):
      result = self._api.get(self._store, self._path(name))
      return bytes(result.bytes()), _tag(result.meta)

  def read_range(self, name: str, start: int, stop: int) -> bytes:
    """Returns a part of an object; fewer bytes if it is shorter.

    Raises:
      FileNotFoundError: If there is no such object.
    """
    if stop <= start:
      return b''
    with self._requesting(name):
      return bytes(
        self._api.get_range(
          self._store, self._path(name), start=start, end=stop
        )
      )

  def size(self, name: str) -> int:
    """Returns the number of bytes of an object.

    Raises:
      FileNotFoundError: If there is none.
    """
    with self._requesting(name):
      return self._api.head(self._store, self._path(name))['size']

  def write(self, name: str, content: bytes) -> None:
    """Writes an object as a whole, over one that may be there."""
    with self._requesting(name):
      self._api.put(self._store, self._path(name), content)

  def write_if(self, name: str, content: bytes, expected: Tag | None) -> Tag:
    """Writes an object unless another process changed it meanwhile.

    The content must differ from all earlier ones: it identifies a write whose
    response was lost.

    Args:
      name: Name of the object.
      content: Its new content.
      expected: Its state when it was read; None if there was none.

    Returns:
      Its state now.

    Raises:
      ChangedError: If it has another state.
    """
    mode: Any = 'create'
    if expected is not None:
      mode = {key: value for key, value in expected._asdict().items() if value}
    changed = (
      self._exceptions.AlreadyExistsError,
      self._exceptions.PreconditionError,
      FileNotFoundError,
    )
    try:
      with self._requesting(name, passed=changed):
        return _tag(
          self._api.put(self._store, self._path(name), content, mode=mode)
        )
    except changed as error:
      found = self._read_own(name, content)
      if found is not None:
        return found
      raise ChangedError(f'{self.address}/{name} has changed') from error
    except errors.InfrastructureError:
      found = self._read_own(name, content)
      if found is None:
        raise
      return found

  def upload(self, path: pathlib.Path, name: str) -> None:
    """Writes the content of a file as an object."""
    with self._requesting(name):
      self._api.put(self._store, self._path(name), path)

  def download(self, name: str, path: pathlib.Path) -> None:
    """Writes the content of an object to a file.

    Raises:
      FileNotFoundError: If there is no such object.
    """
    size = self.size(name)
    with open(path, 'wb') as file:
      for start in range(0, size, _PART_BYTES):
        file.write(self.read_range(name, start, min(size, start + _PART_BYTES)))

  def list(self, prefix: str = '') -> dict[str, Listed]:
    """Returns all objects of a folder by name.

    Args:
      prefix: Name of the folder, without a final slash; empty for all.
    """
    return self._repeat(functools.partial(self._list_once, prefix))

  def _list_once(self, prefix: str) -> dict[str, Listed]:
    path = self._path(prefix).rstrip('/') or None
    with self._requesting(prefix):
      return {
        meta['path'].removeprefix(self._prefix): Listed(
          meta['last_modified'], meta['size'], meta['e_tag']
        )
        for batch in self._api.list(self._store, path)
        for meta in batch
      }

  def delete(self, name: str) -> None:
    """Deletes an object, if it is there."""
    with contextlib.suppress(FileNotFoundError), self._requesting(name):
      self._api.delete(self._store, self._path(name))

  def delete_all(self) -> None:
    """Deletes all objects, many with one request where the store can."""
    names = [self._path(name) for name in self.list()]
    with self._requesting(''):
      if names:
        self._api.delete(self._store, names)

  def _path(self, name: str) -> str:
    return self._prefix + name

  def _read_own(self, name: str, content: bytes) -> Tag | None:
    """Returns the state of an object if it has a content; else None."""
    with contextlib.suppress(FileNotFoundError):
      found, tag = self.read_tagged(name)
      if found == content:
        return tag
    return None

  def _repeat(self, request: Callable[[], _Answer]) -> _Answer:
    """Returns the answer to a request, which is repeated if it came torn.

    The library does so, but not with lists, nor with objects that have changed.
    """
    until = time.monotonic() + _PATIENCE.total_seconds()
    for _ in range(_NUM_REQUESTS - 1):
      try:
        return request()
      except errors.InfrastructureError:
        if time.monotonic() > until:
          raise
    return request()

  @contextlib.contextmanager
  def _requesting(
    self, name: str, passed: tuple[type[Exception], ...] = ()
  ) -> Generator[None]:
    """Turns errors of the client library into InfrastructureError.

    A missing bucket is one, a missing object a FileNotFoundError.
    """
    place = f'{self.address}/{name}'
    try:
      yield
    except passed:
      raise
    except FileNotFoundError as error:
      if 'NoSuchBucket' in str(error):
        raise errors.InfrastructureError(
          f'{place}: there is no such bucket; create it, or mend the address'
        ) from error
      raise FileNotFoundError(f'{place} does not exist') from error
    except self._exceptions.BaseError as error:
      fault = ' '.join(str(error).partition('\n\nDebug')[0].split())
      is_forbidden = isinstance(error, self._exceptions.PermissionDeniedError)
      kind = ForbiddenError if is_forbidden else errors.InfrastructureError
      raise kind(
        f'{place} cannot be reached: {fault[:300]}. See the credentials and '
        'the endpoint in the environment (docs/scale.md); a retry may succeed'
      ) from error


def _tag(meta: Mapping[str, Any]) -> Tag:
  return Tag(meta.get('e_tag'), meta.get('version'))
