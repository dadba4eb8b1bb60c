"""TLS of a server's client: CAs that it trusts, and its own certificate."""

import ssl
from typing import NamedTuple

from tff_algos.core import errors


class ClientTls(NamedTuple):
  """Files of a client.

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
