"""REST clients that ask a running server again and again over one connection.

None goes through a proxy of the environment.
"""

import contextlib
import http.client
import ssl
import urllib.parse
from collections.abc import Callable, Generator
from typing import NamedTuple

from tff_algos.core import errors

_PORTS = {'http': http.client.HTTP_PORT, 'https': http.client.HTTPS_PORT}
# Returns the answer to a body of JSON.
Ask = Callable[[bytes], bytes]


class ClientTls(NamedTuple):
  """Files of TLS of a server's client.

  Attributes:
    ca: PEM file of the CAs of the server's certificate; None for those of this
      machine.
    certificate: PEM file of the client's certificate; None for none.
    key: PEM file of its private key.
  """

  ca: str | None = None
  certificate: str | None = None
  key: str | None = None

  def context(self) -> ssl.SSLContext:
    """Returns the context of a connection.

    Raises:
      UserError: If a file cannot be used.
    """
    if (self.certificate is None) != (self.key is None):
      raise errors.UserError('give both --tls_certificate and --tls_key')
    try:
      context = ssl.create_default_context(cafile=self.ca)
      if self.certificate is not None:
        # Without a password OpenSSL would ask the terminal.
        context.load_cert_chain(self.certificate, self.key, lambda: b'-')
    except (OSError, ValueError) as error:
      reason = getattr(error, 'reason', None) or str(error)
      raise errors.UserError(
        f'the files of TLS cannot be used: {reason}. --tls_ca '
        f'{self.ca}, --tls_certificate {self.certificate} and --tls_key '
        f'{self.key} must be PEM files, the key without a password.'
      ) from error
    return context


class Server(NamedTuple):
  """A server, and how to ask it.

  Attributes:
    url: `http://host:port/prefix` or `https://`.
    timeout_seconds: Timeout of a request.
    token: Bearer token, if the server asks for one.
    tls: Files of TLS.
  """

  url: str
  timeout_seconds: float = 30.0
  token: str | None = None
  tls: ClientTls = ClientTls()

  @property
  def host(self) -> str:
    """Name or address.

    Raises:
      UserError: If there is none, or the URL is of something else.
    """
    parts = self._parts
    if parts.scheme not in _PORTS:
      raise errors.UserError(
        f'url {self.url!r} must start with http:// or https://'
      )
    if not parts.hostname:
      raise errors.UserError(f'url {self.url!r} names no host')
    return parts.hostname

  @property
  def port(self) -> int:
    """TCP port; default: that of the scheme.

    Raises:
      UserError: If it is no port.
    """
    try:
      return self._parts.port or _PORTS[self._parts.scheme]
    except ValueError as error:
      raise errors.UserError(f'url {self.url!r}: {error}') from None

  @property
  def prefix(self) -> str:
    """Start of all paths, such as that of a proxy."""
    return self._parts.path.rstrip('/')

  @property
  def has_tls(self) -> bool:
    """Whether it is asked by TLS."""
    return self._parts.scheme == 'https'

  @property
  def _parts(self) -> urllib.parse.SplitResult:
    return urllib.parse.urlsplit(self.url)


@contextlib.contextmanager
def rest(server: Server, path: str) -> Generator[Ask]:
  """Yields a function that posts to a path.

  It raises RequestError if the server refuses, and OSError or HTTPException if
  it does not answer.

  Raises:
    UserError: If the URL is none of HTTP, or files of TLS cannot be used, or
      are given for a URL without TLS.
  """
  if not server.has_tls and server.tls != ClientTls():
    raise errors.UserError(
      f'url {server.url!r} is asked without TLS, so that its files cannot be '
      'used; take https://, or leave out --tls_ca, --tls_certificate and '
      '--tls_key'
    )
  if server.has_tls:
    connection = http.client.HTTPSConnection(
      server.host,
      server.port,
      timeout=server.timeout_seconds,
      context=server.tls.context(),
    )
  else:
    connection = http.client.HTTPConnection(
      server.host, server.port, timeout=server.timeout_seconds
    )
  headers = {'Content-Type': 'application/json'}
  if server.token is not None:
    headers['Authorization'] = f'Bearer {server.token}'

  def exchange(body: bytes) -> bytes:
    if connection.sock is None:
      connection.connect()
    # A server may refuse a request, and close, before it has all of it.
    with contextlib.suppress(ConnectionError, ssl.SSLEOFError):
      connection.request('POST', f'{server.prefix}{path}', body, headers)
    reply = connection.getresponse()
    content = reply.read()
    if reply.status != http.client.OK:
      text = content[:1000].decode(errors='replace').strip()
      raise errors.RequestError(text, status=reply.status)
    return content

  def ask(body: bytes) -> bytes:
    is_new = connection.sock is None
    try:
      return exchange(body)
    except (OSError, http.client.HTTPException) as error:
      connection.close()  # And opened by the next request.
      if is_new or not isinstance(error, ConnectionError):
        raise
    return exchange(body)  # The server had ended the idle connection.

  with contextlib.closing(connection):
    yield ask
