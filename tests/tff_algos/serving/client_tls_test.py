"""Files of a client's TLS; its handshakes are in `predict_test.py`."""

import pytest

from tests.testing import certificates
from tff_algos.core import errors
from tff_algos.serving import client_tls


@pytest.fixture(name='ca')
def make_ca(tmp_path):
  return certificates.Authority(tmp_path / 'ca')


def test_context(ca):
  trusted = client_tls.ClientTls(ca.path).context().get_ca_certs()
  assert [one['subject'] for one in trusted] == [((('commonName', 'ca'),),)]


def test_files_that_cannot_be_used(ca):
  own, another = ca.issue('a', 'a'), ca.issue('b', 'b')
  for files, text in (
    ((None, own.certificate, None), 'both --tls_certificate and --tls_key'),
    ((None, None, own.key), 'both --tls_certificate and --tls_key'),
    ((ca.path, own.certificate, another.key), 'KEY_VALUES_MISMATCH'),
    (('/missing', None, None), '--tls_ca /missing'),
  ):
    with pytest.raises(errors.UserError, match=text):
      client_tls.ClientTls(*files).context()
