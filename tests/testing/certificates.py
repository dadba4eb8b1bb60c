"""Certificates that a test makes, of a certificate authority of its own."""

import datetime
import ipaddress
import pathlib
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

_DAY = datetime.timedelta(days=1)


class Pair(NamedTuple):
  """Paths of a certificate and its key."""

  certificate: str
  key: str


class Authority:
  """A certificate authority.

  Attributes:
    path: PEM file of its certificate.
  """

  def __init__(self, folder: pathlib.Path):
    """Creates one with its files in a folder."""
    folder.mkdir()
    self._folder = folder
    self._key = ec.generate_private_key(ec.SECP256R1())
    self._name = _name(folder.name)
    usage = x509.BasicConstraints(ca=True, path_length=0)
    certificate = self._sign(self._name, self._key, [(usage, True)])
    self.path = str(folder / 'ca.pem')
    pathlib.Path(self.path).write_bytes(_pem(certificate))

  def issue(
    self, file: str, common_name: str | None, *others: x509.GeneralName
  ) -> Pair:
    """Writes `<file>.pem` and `<file>.key` for a subject of these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    extensions = [(x509.SubjectAlternativeName(others), False)] * bool(others)
    certificate = self._sign(_name(common_name), key, extensions)
    pair = Pair(
      *(str(self._folder / f'{file}.{end}') for end in ('pem', 'key'))
    )
    pathlib.Path(pair.certificate).write_bytes(_pem(certificate))
    pathlib.Path(pair.key).write_bytes(
      key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
      )
    )
    return pair

  def issue_local(self, file: str) -> Pair:
    """Issues a certificate of this machine."""
    address = x509.IPAddress(ipaddress.ip_address('127.0.0.1'))
    return self.issue(file, None, address, x509.DNSName('localhost'))

  def _sign(self, name, key, extensions) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
      issuer_name=self._name,
      subject_name=name,
      public_key=key.public_key(),
      serial_number=x509.random_serial_number(),
      not_valid_before=now - _DAY,
      not_valid_after=now + _DAY,
    )
    for extension, is_critical in extensions:
      builder = builder.add_extension(extension, is_critical)
    return builder.sign(self._key, hashes.SHA256())


def encrypt(key: str, path: pathlib.Path) -> None:
  """Writes a key with a password."""
  content = serialization.load_pem_private_key(
    pathlib.Path(key).read_bytes(), None
  )
  path.write_bytes(
    content.private_bytes(
      serialization.Encoding.PEM,
      serialization.PrivateFormat.PKCS8,
      serialization.BestAvailableEncryption(b'secret'),
    )
  )


def _name(common_name: str | None) -> x509.Name:
  if common_name is None:
    return x509.Name([])
  return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
  return certificate.public_bytes(serialization.Encoding.PEM)
