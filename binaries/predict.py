r"""Sends a predict request to a running model server (REST).

  python -m binaries.predict --model=personalized_models \
    --instances='[{"client_id": "c001", "x": [0.1, 0.2]}]'

prints the response as JSON. Rows of raw data, with a value for each column and
null for a missing number, go to the signature serving_raw:

  python -m binaries.predict --model=personalized_models \
    --instances='[{"client_id": "c001", "age": 31, "job": "baker"}]'

Long requests are read from a file: a JSON list of
instances, or a whole request body with `instances` or `inputs`:

  python -m binaries.predict --model=cluster_models \
    --signature=pick_cluster --request_file=request.json
"""

import http.client
import json
import sys
import urllib.parse
from typing import Any

from absl import flags

from binaries import command
from tff_algos.core import errors
from tff_algos.serving import clients

_URL = flags.DEFINE_string(
  'url', 'http://127.0.0.1:8501', "Base URL of the server's REST API."
)
_MODEL = flags.DEFINE_string('model', 'cluster_models', 'Name of the model.')
_VERSION = flags.DEFINE_integer(
  'version', None, 'Version of the model; default: the newest.'
)
_SIGNATURE = flags.DEFINE_string(
  'signature',
  None,
  'Name of the signature. Default: serving_raw for rows or columns without x, '
  'else serving_default.',
)
_INSTANCES = flags.DEFINE_string(
  'instances', None, 'The instances to predict, a JSON list.'
)
_REQUEST_FILE = flags.DEFINE_string(
  'request_file', None, 'Instead of --instances: a JSON file, or - for stdin.'
)
_TOKEN_FILE = flags.DEFINE_string(
  'token_file', None, 'File with the token that the server asks for.'
)
_TLS_CA = flags.DEFINE_string(
  'tls_ca',
  None,
  "PEM file of the CAs of the server's certificate. Default for https: those "
  'of this machine.',
)
_TLS_CERTIFICATE = flags.DEFINE_string(
  'tls_certificate',
  None,
  'PEM file of a certificate, where the server asks clients for one (mTLS).',
)
_TLS_KEY = flags.DEFINE_string(
  'tls_key', None, 'PEM file of the private key of --tls_certificate.'
)
_TIMEOUT_SECONDS = flags.DEFINE_float(
  'timeout_seconds',
  30.0,
  'Timeout of the request, in seconds.',
  lower_bound=0.1,
  upper_bound=86_400.0,
)


def predict(server: clients.Server, path: str, body: dict[str, Any]) -> Any:
  """Returns the response to a predict request.

  Args:
    server: The server, and how to ask it.
    path: Path of the REST API.
    body: The request.

  Raises:
    RequestError: If the server refuses the request.
    UserError: If no server responds in time, the URL is no URL of HTTP, or a
      file of TLS cannot be used.
  """
  try:
    with clients.rest(server, path) as ask:
      return json.loads(ask(json.dumps(body).encode()))
  except errors.RequestError as error:
    raise errors.RequestError(
      f'{server.url} answers {error.status}: {error}', error.status
    ) from error
  except (OSError, ValueError, http.client.HTTPException) as error:
    raise errors.UserError(
      f'{server.url} does not answer: {error}. Is binaries.serve running '
      'there, with TLS if the URL is of https?'
    ) from error


def _request_body() -> dict[str, Any]:
  """Returns the request body described by the flags.

  Raises:
    UserError: If there is none, or it is not JSON.
  """
  if (_INSTANCES.value is None) == (_REQUEST_FILE.value is None):
    raise errors.UserError('give either --instances or --request_file')
  try:
    if _INSTANCES.value is not None:
      content = json.loads(_INSTANCES.value)
    elif _REQUEST_FILE.value == '-':
      content = json.load(sys.stdin)
    else:
      with open(_REQUEST_FILE.value, encoding='utf-8') as file:
        content = json.load(file)
  except (OSError, ValueError, RecursionError) as error:
    raise errors.UserError(f'the request cannot be read: {error}') from error
  if isinstance(content, list):
    content = {'instances': content}
  if not isinstance(content, dict):
    raise errors.UserError('the request must be a JSON list or object')
  asked = _SIGNATURE.value or _default_signature(content)
  given = content.get('signature_name', asked)
  if _SIGNATURE.value not in (None, given):
    raise errors.UserError(
      f'--signature={_SIGNATURE.value} is not the signature_name of the '
      f'request, {given!r}; give one of them'
    )
  return {'signature_name': given, **content}


def _token() -> str | None:
  """Returns the token of --token_file, if it is given.

  Raises:
    UserError: If it cannot be read.
  """
  if _TOKEN_FILE.value is None:
    return None
  try:
    with open(_TOKEN_FILE.value, encoding='ascii') as file:
      words = file.read().split()
  except (OSError, ValueError) as error:
    raise errors.UserError(f'the token cannot be read: {error}') from error
  if len(words) != 1:  # Secrets, which are not printed.
    raise errors.UserError(
      f'--token_file={_TOKEN_FILE.value} must have one token, without blanks; '
      f'it has {len(words)} words'
    )
  return words[0]


def _path() -> str:
  """Returns the path of the REST API for the flags' model and version."""
  model = f'/v1/models/{urllib.parse.quote(_MODEL.value, safe="")}'
  if _VERSION.value is not None:
    model += f'/versions/{_VERSION.value}'
  return f'{model}:predict'


def _tls() -> clients.ClientTls:
  """Returns the files of TLS that the flags name."""
  return clients.ClientTls(
    _TLS_CA.value, _TLS_CERTIFICATE.value, _TLS_KEY.value
  )


def _default_signature(content: dict[str, Any]) -> str:
  """Returns the signature of raw columns, unless the encoded input is given."""
  rows = content.get('instances', [content.get('inputs')])
  is_raw = isinstance(rows, list) and any(
    isinstance(row, dict) and row and 'x' not in row for row in rows
  )
  return 'serving_raw' if is_raw else 'serving_default'


def _main() -> None:
  """Prints the server's response."""
  server = clients.Server(_URL.value, _TIMEOUT_SECONDS.value, _token(), _tls())
  answer = predict(server, _path(), _request_body())
  print(json.dumps(answer, indent=2))


if __name__ == '__main__':
  command.run(_main)
