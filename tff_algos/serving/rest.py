"""TensorFlow Serving's REST API as a Starlette application.

https://www.tensorflow.org/tfx/serving/api_rest; and a list of the models at
`/v1/models`, which TensorFlow Serving does not have.
"""

# Protobuf creates the message classes at import.
# pyright: reportAttributeAccessIssue=false
import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import prometheus_client
from absl import logging
from google.protobuf import json_format
from starlette import (
  applications,
  datastructures,
  exceptions,
  middleware,
  requests,
  responses,
  routing,
  types,
)
from tensorflow_serving.apis import get_model_metadata_pb2

from tff_algos.core import errors
from tff_algos.serving import (
  access,
  batching,
  canary,
  examples,
  models,
  monitoring,
  refusals,
  served_model,
  server_config,
  tensors,
)
from tff_algos.serving import lanes as lanes_lib

_MODELS = '/v1/models'
# Requests with a body or an answer above `lanes.SMALL_BYTES` that the server
# holds at a time; the bodies of others are not read meanwhile.
_MAX_LARGE = 4
# Other connections get their turn between the chunks of large bodies.
_READ_PAUSE_SECONDS = 0.002
# An oversized body is read and discarded, so that the client receives the error
# and no connection reset; by pauses, at most some megabytes a second.
_DRAIN_PAUSE_SECONDS = 0.02
_CHUNK_BYTES = 64 * 2**10
_RETRY_AFTER_SECONDS = '1'
# Status in log and metrics of requests whose client did not wait.
_GONE = 499


def create_app(
  lanes: lanes_lib.Lanes, pace: refusals.Pace
) -> applications.Starlette:
  """Returns the application that serves the models of a store."""
  places = asyncio.Semaphore(_MAX_LARGE)

  def endpoint(what: str):
    async def respond(request: requests.Request) -> responses.Response:
      request.state.method = what
      request.state.store = lanes.store.seen_by(_caller(request, lanes))
      exchange = _Exchange(request, lanes, places)
      try:
        return await exchange.response(await exchange.answer(what))
      except asyncio.CancelledError:
        exchange.end()
        raise errors.RequestError('the server stops', status=503) from None
      except BaseException:
        exchange.end()
        raise

    return respond

  async def healthz(request: requests.Request) -> responses.Response:
    del request
    return _Json(_dump({'status': 'ok'}))

  async def readyz(request: requests.Request) -> responses.Response:
    del request
    number = len(lanes.store.newest_loaded())
    return _Json(_dump({'num_models': number}), 200 if number else 503)

  async def refuse(request: requests.Request) -> responses.Response:
    del request
    raise exceptions.HTTPException(405)

  async def metrics(request: requests.Request) -> responses.Response:
    if _caller(request, lanes).client_id is not None:
      raise errors.RequestError('this token may not see metrics', status=403)
    text = await asyncio.to_thread(lanes.monitor.text)
    return responses.Response(
      text, media_type=prometheus_client.CONTENT_TYPE_LATEST
    )

  routes = [
    routing.Route('/healthz', healthz, methods=['GET']),
    routing.Route('/readyz', readyz, methods=['GET']),
    routing.Route('/metrics', metrics, methods=['GET']),
    routing.Route(_MODELS, endpoint('names'), methods=['GET']),
  ]
  for model in (
    f'{_MODELS}/{{name}}',
    f'{_MODELS}/{{name}}/versions/{{version}}',
    f'{_MODELS}/{{name}}/labels/{{label}}',
  ):
    # Most specific route first: a name may contain anything but a slash.
    routes += [
      *(
        routing.Route(f'{model}:{what}', respond, methods=[method])
        for what in ('predict', 'classify', 'regress')
        # A GET would ask for the status of a model with this name.
        for method, respond in (('POST', endpoint(what)), ('GET', refuse))
      ),
      routing.Route(f'{model}/metadata', endpoint('metadata'), methods=['GET']),
      routing.Route(model, endpoint('status'), methods=['GET']),
    ]
  app = applications.Starlette(
    routes=routes,
    middleware=[middleware.Middleware(_Observed, lanes.monitor, pace)],
    exception_handlers={  # pyright: ignore[reportArgumentType]
      errors.RequestError: _on_request_error,
      exceptions.HTTPException: _on_http_error,
      requests.ClientDisconnect: _on_disconnect,
    },
  )
  app.router.redirect_slashes = False
  return app


def _caller(request: requests.Request, lanes: lanes_lib.Lanes) -> access.Caller:
  certificate = getattr(request.state, 'certificate', '')
  address = request.client.host if request.client else ''
  return lanes.tokens.caller(
    request.headers.get('authorization'), certificate or address
  )


class _Observed:
  """Gives requests an id, records how they end, and paces refusals.

  It answers those that fail by a bug: Starlette would do so without the id.
  """

  def __init__(
    self, app: types.ASGIApp, monitor: monitoring.Monitor, pace: refusals.Pace
  ):
    self._app = app
    self._monitor = monitor
    self._pace = pace

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    start = time.perf_counter()
    headers = datastructures.Headers(scope=scope)
    request_id = monitoring.request_id(headers.get(monitoring.REQUEST_ID))
    status = 0

    async def send_with_id(message: types.Message) -> None:
      nonlocal status
      if message['type'] == 'http.response.start':
        status = message['status']
        found = datastructures.MutableHeaders(scope=message)
        found[monitoring.REQUEST_ID] = request_id
        if 400 <= status < _GONE:
          await asyncio.sleep(self._pace.seconds())
      await send(message)

    try:
      await self._app(scope, receive, send_with_id)
    except Exception:
      if status:  # The answer has begun.
        raise
      logging.exception('A request of REST failed.')
      text = f'internal error at {scope["path"][:200]}'
      failed = _Json(_dump({'error': text}), 500)
      await failed(scope, receive, send_with_id)
    finally:
      store: models.ModelStore | None = scope['state'].get('store')
      self._monitor.record(
        monitoring.Call(
          request_id,
          (scope.get('client') or ('', 0))[0],
          'rest',
          scope['state'].get('method', ''),
          scope.get('path_params', {}).get('name', ''),
          store.version if store else None,
          str(status or 500),
          time.perf_counter() - start,
          store.caller.name if store else '',
          scope['state'].get('certificate', ''),
        )
      )


def answer(
  store: models.ModelStore,
  config: server_config.ServerConfig,
  what: str,
  path_params: dict[str, str],
  body: bytes,
) -> bytes | batching.Question:
  """Returns the JSON that answers a request, or what to ask a model for it.

  Args:
    store: Models.
    config: Limits.
    what: Name of the API: `predict`, ...
    path_params: `name`, and `version` or `label`, of the path, if it has them.
    body: JSON.

  Raises:
    RequestError: If the request is refused.
  """
  if what == 'names':
    return _dump({'models': store.names()})
  name, version = path_params['name'], _version(path_params)
  if what in _REPORTS:
    return _dump(_REPORTS[what](store, name, version))
  return canary.ask(
    store,
    name,
    version,
    functools.partial(_QUESTIONS[what], config, _Body(body)),
  )


class _Exchange:
  """One request: its body, its answer, and its place among the large ones."""

  def __init__(
    self,
    request: requests.Request,
    lanes: lanes_lib.Lanes,
    places: asyncio.Semaphore,
  ):
    self._request = request
    self._lanes = lanes
    self._places = places
    self._has_place = False

  async def answer(self, what: str) -> bytes:
    """Returns the JSON; work is cancelled if the client goes meanwhile."""
    body = await self._body()
    future = asyncio.wrap_future(
      self._lanes.submit(
        answer,
        what,
        self._request.path_params,
        body,
        is_large=lanes_lib.is_large_json(body),
        store=self._request.state.store,
      )
    )
    gone = asyncio.ensure_future(self._gone())
    try:
      await asyncio.wait({future, gone}, return_when=asyncio.FIRST_COMPLETED)
      if not future.done():
        future.cancel()
        raise requests.ClientDisconnect
      return future.result()
    finally:
      gone.cancel()

  async def response(self, content: bytes) -> responses.Response:
    """Returns the response; the place is given back once it is sent."""
    if len(content) <= lanes_lib.SMALL_BYTES:
      self.end()
      return _Json(content)
    if not self._has_place:
      if self._places.locked():
        raise errors.RequestError(
          'too many large answers are being sent; send again later', status=503
        )
      await self._take_place()
    return _LargeJson(content, self.end)

  def end(self) -> None:
    """Gives the place back."""
    if self._has_place:
      self._has_place = False
      self._places.release()

  async def _take_place(self) -> None:
    await self._places.acquire()
    self._has_place = True

  async def _wait_for_place(self) -> None:
    try:
      await asyncio.wait_for(
        self._take_place(), self._lanes.config.answer_seconds
      )
    except TimeoutError:
      raise errors.RequestError(
        'too many large requests wait; send again later', status=503
      ) from None

  async def _gone(self) -> None:
    """Returns when the client has gone."""
    while (await self._request.receive())['type'] != 'http.disconnect':
      pass

  async def _body(self) -> bytes:
    config = self._lanes.config
    chunks, size = [], 0
    try:
      async with asyncio.timeout(config.receive_seconds) as limit:
        async for chunk in self._request.stream():
          size += len(chunk)
          if size > config.max_request_bytes:
            chunks.clear()
            await asyncio.sleep(_DRAIN_PAUSE_SECONDS)
            continue
          chunks.append(chunk)
          if size <= lanes_lib.SMALL_BYTES:
            continue
          # What the client sends meanwhile is not read.
          if not self._has_place:
            limit.reschedule(None)
            await self._wait_for_place()
            limit.reschedule(
              asyncio.get_running_loop().time() + config.receive_seconds
            )
          await asyncio.sleep(_READ_PAUSE_SECONDS)
    except TimeoutError:
      if size <= config.max_request_bytes:
        raise errors.RequestError(
          f'the request was not received within {config.receive_seconds:g} '
          'seconds',
          status=408,
        ) from None
    if size > config.max_request_bytes:
      raise errors.RequestError(
        f'the request is larger than {config.max_request_bytes} bytes; send '
        'fewer rows at once',
        status=413,
      )
    return b''.join(chunks)


class _Json(responses.Response):
  """JSON that is encoded already."""

  media_type = 'application/json'


class _LargeJson(_Json):
  """JSON that is sent as fast as the client receives it."""

  def __init__(self, content: bytes, on_end: Callable[[], None]):
    super().__init__(content)
    self._on_end = on_end

  async def __call__(
    self, scope: types.Scope, receive: types.Receive, send: types.Send
  ) -> None:
    """Sends the response in chunks, each when the client has the one before."""
    del scope, receive
    view = memoryview(self.body)
    try:
      await send(
        {
          'type': 'http.response.start',
          'status': self.status_code,
          'headers': self.raw_headers,
        }
      )
      for start in range(0, len(view), _CHUNK_BYTES):
        await send(
          {
            'type': 'http.response.body',
            'body': bytes(view[start : start + _CHUNK_BYTES]),
            'more_body': start + _CHUNK_BYTES < len(view),
          }
        )
    finally:
      self._on_end()


def _dump(content: Any) -> bytes:
  return orjson.dumps(content) + b'\n'


async def _on_request_error(
  request: requests.Request, error: errors.RequestError
) -> responses.Response:
  del request
  headers = {}
  if error.status == 503:
    headers['Retry-After'] = _RETRY_AFTER_SECONDS
  if error.status == 401:
    headers['WWW-Authenticate'] = 'Bearer'
  if error.status in (401, 408, 413, 503):  # Its body may not have been read.
    headers['Connection'] = 'close'
  return _Json(_dump({'error': str(error)}), error.status, headers)


async def _on_http_error(
  request: requests.Request, error: exceptions.HTTPException
) -> responses.Response:
  text = (
    f'malformed request: {request.method} {request.scope["path"][:200]}; '
    f'GET {_MODELS} lists the models, and {_MODELS}/<model> takes GET, '
    'GET .../metadata and POST ...:predict, ...:classify and ...:regress'
  )
  return _Json(_dump({'error': text}), error.status_code)


async def _on_disconnect(
  request: requests.Request, error: requests.ClientDisconnect
) -> responses.Response:
  del request, error
  return _Json(b'', _GONE)  # Received by nobody.


def _version(path_params: dict[str, str]) -> int | str | None:
  """Returns the version or label of a path; None if it has none."""
  version = path_params.get('version')
  if version is None:
    return path_params.get('label')
  if not (version.isascii() and version.isdigit() and len(version) < 20):
    raise errors.RequestError(
      f'a version must be a whole number, got {version[:50]!r}'
    )
  return int(version)


def _status(
  store: models.ModelStore, name: str, version: int | str | None
) -> dict[str, Any]:
  return {
    'model_version_status': [
      {
        'version': str(status.version),
        'state': status.state,
        'status': {
          'error_code': 'UNKNOWN' if status.error else 'OK',
          'error_message': status.error,
        },
      }
      for status in store.statuses(name, version)
    ]
  }


def _metadata(
  store: models.ModelStore, name: str, version: int | str | None
) -> dict[str, Any]:
  model = store.get(name, version)
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
  config: server_config.ServerConfig,
  body: '_Body',
  model: served_model.ServedModel,
) -> batching.Question:
  request = body.content
  signature_name = _signature_name(request) or served_model.DEFAULT_SIGNATURE
  signature = model.signature(signature_name)
  if ('instances' in request) == ('inputs' in request):
    raise errors.RequestError(
      "a request must have either 'instances' (rows) or 'inputs' (columns)"
    )
  is_raw = signature_name in model.raw_signatures
  if 'instances' in request:
    inputs = tensors.inputs_from_rows(
      request['instances'], signature, max_rows=config.max_rows, is_raw=is_raw
    )
  else:
    inputs = tensors.inputs_from_columns(
      request['inputs'], signature, is_raw=is_raw
    )
  tensors.check_size(inputs, signature, config)
  has_rows = 'instances' in request

  def respond(outputs: Mapping[str, np.ndarray]) -> bytes:
    if has_rows:
      return _dump({'predictions': tensors.rows_from_outputs(outputs)})
    return _dump({'outputs': tensors.columns_from_outputs(outputs)})

  return batching.Question(model, signature_name, inputs, respond)


def _ask_examples(
  method: str,
  result: Callable[[Mapping[str, np.ndarray]], Any],
  config: server_config.ServerConfig,
  body: '_Body',
  model: served_model.ServedModel,
) -> batching.Question:
  request = body.content
  return examples.ask(
    model,
    method,
    _signature_name(request) or method,
    examples.from_json(request, model.numbers, config),
    config,
    lambda outputs: _dump({'result': result(outputs)}),
  )


def _signature_name(request: dict[str, Any]) -> str:
  """Returns the signature that a request names; '' for none."""
  name = request.get('signature_name', '')
  if not isinstance(name, str):
    raise errors.RequestError("'signature_name' must be a string")
  return name


class _Body:
  """JSON of a request, which is parsed once, when a model has been found."""

  def __init__(self, encoded: bytes):
    self._encoded = encoded

  @functools.cached_property
  def content(self) -> dict[str, Any]:
    """Returns the object.

    Raises:
      RequestError: If it is none.
    """
    try:
      request = orjson.loads(self._encoded)
    except ValueError as error:
      raise errors.RequestError(
        f'the request body is not JSON: {str(error)[:200]}'
      ) from None
    if not isinstance(request, dict):
      raise errors.RequestError('the request body must be a JSON object')
    return request


# Of (store, name of a model, version).
_REPORTS = {'status': _status, 'metadata': _metadata}
# Of (config, body, model).
_QUESTIONS = {
  'predict': _predict,
  'classify': functools.partial(
    _ask_examples, examples.CLASSIFY, examples.classifications
  ),
  'regress': functools.partial(
    _ask_examples, examples.REGRESS, examples.regressions
  ),
}
