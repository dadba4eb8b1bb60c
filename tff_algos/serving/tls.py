"""TLS of the server: certificate, key and clients' CA, reloaded on changes."""

import pathlib
import ssl
from collections.abc import Callable, Iterable
from typing import NamedTuple

import grpc

from tff_algos.core import errors
from tff_algos.serving import server_config, watched


class _Loaded(NamedTuple):
  """Credentials of the files as they were read.

  Attributes:
    context: For REST.
    configuration: For gRPC.
  """

  context: ssl.SSLContext
  configuration: grpc.ServerCertificateConfiguration


class Certificates:
  """Credentials of the server, which new connections get as the files are.

  While the files are damaged, or a new key is not there yet, the credentials
  before are used.
  """

  def __init__(self, certificate: str, key: str, client_ca: str | None):
    """Reads the files.

    Args:
      certificate: PEM file of the server's certificate and its chain.
      key: PEM file of its private key.
      client_ca: PEM file of the CAs of clients' certificates, which are then
        required; None asks clients for none.

    Raises:
      UserError: If a file cannot be read, or the key is not the certificate's.
    """
    self._paths = {'tls_certificate': certificate, 'tls_key': key}
    if client_ca is not None:
      self._paths['tls_client_ca'] = client_ca
    self._loaded = watched.Watched(
      'TLS certificates', self._paths.values(), self._load
    )

  def context(self) -> ssl.SSLContext:
    """Returns the context of a new REST connection."""
    return self._loaded.current().context

  def grpc_credentials(self) -> grpc.ServerCredentials:
    """Returns credentials that are asked anew for each gRPC connection."""
    return grpc.dynamic_ssl_server_credentials(
      self._loaded.current().configuration,
      lambda: self._loaded.current().configuration,
      require_client_authentication='tls_client_ca' in self._paths,
    )

  def _load(self) -> _Loaded:
    contents = {flag: self._read(flag) for flag in self._paths}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(['http/1.1'])
    certificate, key = self._paths['tls_certificate'], self._paths['tls_key']
    # First, as `load_cert_chain` does not say which file is damaged.
    self._use(
      'tls_certificate',
      ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations,
      certificate,
    )
    # Without a password OpenSSL would ask the terminal.
    self._use(
      'tls_key', context.load_cert_chain, certificate, key, lambda: b'-'
    )
    if 'tls_client_ca' in self._paths:
      context.verify_mode = ssl.CERT_REQUIRED
      self._use(
        'tls_client_ca',
        context.load_verify_locations,
        self._paths['tls_client_ca'],
      )
    return _Loaded(
      context,
      grpc.ssl_server_certificate_configuration(
        [(contents['tls_key'], contents['tls_certificate'])],
        contents.get('tls_client_ca'),
      ),
    )

  def _read(self, flag: str) -> bytes:
    try:
      return pathlib.Path(self._paths[flag]).read_bytes()
    except OSError as error:
      raise self._error(flag, error.strerror) from error

  def _use(self, flag: str, load: Callable[..., None], *arguments) -> None:
    try:
      load(*arguments)
    except (OSError, ValueError) as error:
      reason = getattr(error, 'reason', None) or str(error)
      raise self._error(flag, reason) from error

  def _error(self, flag: str, reason: str | None) -> errors.UserError:
    return errors.UserError(
      f'--{flag} {self._paths[flag]} cannot be used: {reason}. It must be '
      f'{_WANTED[flag]}.'
    )


_WANTED = {
  'tls_certificate': "a PEM file of the server's certificate and its chain",
  'tls_key': "a PEM file of the certificate's private key, without a password",
  'tls_client_ca': "a PEM file of the CAs of clients' certificates",
}


def certificates(config: server_config.ServerConfig) -> Certificates | None:
  """Returns the credentials that the options name; None without TLS.

  Raises:
    UserError: If an option is missing, or `Certificates` refuses a file.
  """
  certificate, key = config.tls_certificate, config.tls_key
  if certificate is None and key is None and config.tls_client_ca is None:
    return None
  if certificate is None or key is None:
    raise errors.UserError(
      'TLS needs both --tls_certificate and --tls_key; --tls_client_ca comes '
      'beside them'
    )
  return Certificates(certificate, key, config.tls_client_ca)


def subject(common_name: str | None, other_names: Iterable[str]) -> str:
  """Returns the name of a client's certificate, for the access log.

  Args:
    common_name: Of its subject; None or '' without one.
    other_names: Alternative names, in the certificate's order.
  """
  return common_name or next(iter(other_names), '')
