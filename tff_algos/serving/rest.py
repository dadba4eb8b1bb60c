"""TensorFlow Serving's REST API as a Starlette application.

https://www.tensorflow.org/tfx/serving/api_rest; and a list of the models at
`/v1/models`, which TensorFlow Serving does not have.
"""

# Protobuf creates the message classes at import.
# pyright: reportAttributeAccessIssue=false
import json
from typing import Any

import numpy as np
from google.protobuf import json_format
from starlette import (
  applications,
  concurrency,
  exceptions,
  requests,
  responses,
  routing,
)
from tensorflow_serving.apis import get_model_metadata_pb2

from tff_algos.core import errors
from tff_algos.serving import examples, models, tensors

# This much of an oversized body is still read and discarded, so that the client
# receives the error response instead of a connection reset.
_MAX_DRAINED_BYTES = 256 * 2**20
_MODELS = '/v1/models'


def create_app(
  store: models.ModelStore, max_request_bytes: int
) -> applications.Starlette:
  """Returns the application that serves the models of a store."""

  async def names(request: requests.Request) -> responses.Response:
    del request
    return await _in_thread(lambda: {'models': store.names()})

  async def status(request: requests.Request) -> responses.Response:
    return await _in_thread(_status, store, request.path_params)

  async def metadata(request: requests.Request) -> responses.Response:
    return await _in_thread(_metadata, store, request.path_params)

  async def predict(request: requests.Request) -> responses.Response:
    body = await _read_body(request, max_request_bytes)
    return await _in_thread(_predict, store, request.path_params, body)

  async def classify(request: requests.Request) -> responses.Response:
    body = await _read_body(request, max_request_bytes)
    return await _in_thread(_classify, store, request.path_params, body)

  async def regress(request: requests.Request) -> responses.Response:
    body = await _read_body(request, max_request_bytes)
    return await _in_thread(_regress, store, request.path_params, body)

  routes = [routing.Route(_MODELS, names, methods=['GET'])]
  for model in (
    f'{_MODELS}/{{name}}',
    f'{_MODELS}/{{name}}/versions/{{version}}',
  ):
    # Most specific route first: a name may contain anything but a slash.
    routes += [
      routing.Route(f'{model}:predict', predict, methods=['POST']),
      routing.Route(f'{model}:classify', classify, methods=['POST']),
      routing.Route(f'{model}:regress', regress, methods=['POST']),
      routing.Route(f'{model}/metadata', metadata, methods=['GET']),
      routing.Route(model, status, methods=['GET']),
    ]
  return applications.Starlette(
    routes=routes,
    exception_handlers={  # pyright: ignore[reportArgumentType]
      errors.RequestError: _on_request_error,
      exceptions.HTTPException: _on_http_error,
      Exception: _on_bug,
    },
  )


async def _in_thread(function, *arguments) -> responses.Response:
  # TensorFlow and the conversion of JSON would block the event loop.
  return _json(await concurrency.run_in_threadpool(function, *arguments))


def _json(content: Any, status_code: int = 200) -> responses.Response:
  # Unlike Starlette, TensorFlow Serving allows NaN in a response.
  return responses.Response(
    json.dumps(content) + '\n', status_code, media_type='application/json'
  )


async def _on_request_error(
  request: requests.Request, error: errors.RequestError
) -> responses.Response:
  del request
  return _json({'error': str(error)}, error.status)


async def _on_http_error(
  request: requests.Request, error: exceptions.HTTPException
) -> responses.Response:
  text = (
    f'malformed request: {request.method} {request.url.path[:200]}; '
    f'GET {_MODELS} lists the models, and {_MODELS}/<model> takes GET, '
    'GET .../metadata and POST ...:predict, ...:classify and ...:regress'
  )
  return _json({'error': text}, error.status_code)


async def _on_bug(
  request: requests.Request, error: Exception
) -> responses.Response:
  del error  # Logged by the server with its stack trace.
  return _json({'error': f'internal error at {request.url.path[:200]}'}, 500)


async def _read_body(request: requests.Request, max_bytes: int) -> bytes:
  chunks, size = [], 0
  async for chunk in request.stream():
    size += len(chunk)
    if size <= max_bytes:
      chunks.append(chunk)
    else:
      chunks.clear()
    if size > max_bytes + _MAX_DRAINED_BYTES:
      break
  if size > max_bytes:
    raise errors.RequestError(
      f'the request is larger than {max_bytes} bytes; send fewer rows at once',
      status=413,
    )
  return b''.join(chunks)


def _version(path_params: dict[str, str]) -> int | None:
  version = path_params.get('version')
  if version is None:
    return None
  if not (version.isascii() and version.isdigit() and len(version) < 20):
    raise errors.RequestError(
      f'a version must be a whole number, got {version[:50]!r}'
    )
  return int(version)


def _status(
  store: models.ModelStore, path_params: dict[str, str]
) -> dict[str, Any]:
  statuses = store.statuses(path_params['name'], _version(path_params))
  return {
    'model_version_status': [
      {
        'version': str(status.version),
        'state': 'END' if status.error else 'AVAILABLE',
        'status': {
          'error_code': 'UNKNOWN' if status.error else 'OK',
          'error_message': status.error,
        },
      }
      for status in statuses
    ]
  }


def _metadata(
  store: models.ModelStore, path_params: dict[str, str]
) -> dict[str, Any]:
  model = store.get(path_params['name'], _version(path_params))
  signature_map = get_model_metadata_pb2.SignatureDefMap(
    signature_def=model.signature_defs
  )
  return {
    'model_spec': {
      'name': model.name,
      'signature_name': '',
      'version': str(model.version),
    },
    'metadata': {
      'signature_def': json_format.MessageToDict(
        signature_map,
        including_default_value_fields=True,  # pyright: ignore[reportCallIssue]
        preserving_proto_field_name=True,
      )
    },
  }


def _predict(
  store: models.ModelStore, path_params: dict[str, str], body: bytes
) -> dict[str, Any]:
  model = store.get(path_params['name'], _version(path_params))
  request = _parse(body)
  signature_name = _signature_name(request) or models.DEFAULT_SIGNATURE
  signature = model.signature(signature_name)
  if ('instances' in request) == ('inputs' in request):
    raise errors.RequestError(
      "a request must have either 'instances' (rows) or 'inputs' (columns)"
    )
  is_raw = signature_name in model.raw_signatures
  if 'instances' in request:
    inputs = tensors.inputs_from_rows(
      request['instances'], signature, is_raw=is_raw
    )
    outputs = model.predict(signature_name, inputs)
    return {'predictions': tensors.rows_from_outputs(outputs)}
  inputs = tensors.inputs_from_columns(
    request['inputs'], signature, is_raw=is_raw
  )
  outputs = model.predict(signature_name, inputs)
  return {'outputs': tensors.columns_from_outputs(outputs)}


def _classify(
  store: models.ModelStore, path_params: dict[str, str], body: bytes
) -> dict[str, Any]:
  outputs = _answer_examples(store, path_params, body, examples.CLASSIFY)
  return {'result': examples.classifications(outputs)}


def _regress(
  store: models.ModelStore, path_params: dict[str, str], body: bytes
) -> dict[str, Any]:
  outputs = _answer_examples(store, path_params, body, examples.REGRESS)
  return {'result': examples.regressions(outputs)}


def _answer_examples(
  store: models.ModelStore,
  path_params: dict[str, str],
  body: bytes,
  method: str,
) -> dict[str, np.ndarray]:
  model = store.get(path_params['name'], _version(path_params))
  request = _parse(body)
  return examples.predict(
    model,
    method,
    _signature_name(request),
    examples.from_json(request, model.numbers),
  )


def _signature_name(request: dict[str, Any]) -> str:
  """Returns the signature that a request names; '' for none."""
  name = request.get('signature_name', '')
  if not isinstance(name, str):
    raise errors.RequestError("'signature_name' must be a string")
  return name


def _parse(body: bytes) -> dict[str, Any]:
  def refuse(constant: str):
    raise ValueError(f'{constant} is not a JSON number')

  try:
    request = json.loads(body, parse_constant=refuse)
  except (ValueError, RecursionError) as error:
    raise errors.RequestError(
      f'the request body is not JSON: {str(error)[:200]}'
    ) from None
  if not isinstance(request, dict):
    raise errors.RequestError('the request body must be a JSON object')
  return request
