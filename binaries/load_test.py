r"""Asks a running model server as many clients do, and draws the latencies.

  python -m binaries.load_test --model=personalized_models \
    --instances='[{"client_id": "c001", "x": [0.1, 0.2]}]' --concurrency=8

prints percentiles and writes the picture load_test.png. gRPC is asked by
--url=grpc://127.0.0.1:8500, with TLS by https:// and grpcs://. The request is
that of binaries.predict, whose flags are these, too.

Each client waits for its answer before it asks again: so latencies are those of
so many clients, and not of so many requests a second.
"""

import functools
import json
import pathlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from absl import flags

from binaries import command, predict
from tff_algos.core import durable, errors, hosts
from tff_algos.serving import clients

flags.adopt_module_key_flags(predict)
_CONCURRENCY = flags.DEFINE_integer(
  'concurrency',
  4,
  'Clients that ask at a time, each over a connection of its own.',
  lower_bound=1,
  upper_bound=1000,
)
_SECONDS = flags.DEFINE_float(
  'seconds', 10.0, 'Duration.', lower_bound=0.1, upper_bound=3600
)
_MAX_REQUESTS = flags.DEFINE_integer(
  'max_requests',
  1_000_000,
  'Ends earlier after so many requests.',
  lower_bound=1,
  upper_bound=10_000_000,
)
_OUT = flags.DEFINE_string('out', 'load_test.png', 'File of the picture.')
_IS_MINE = flags.DEFINE_bool(
  'is_mine',
  False,
  'Whether a server on another machine may be loaded: it is yours, and others '
  'who use it know.',
)


def load_test() -> None:
  """Loads the server, prints percentiles and writes the picture."""
  from tff_algos.reports.plotting import latency_plot, style
  from tff_algos.serving import load

  server = clients.Server(
    flags.FLAGS.url, flags.FLAGS.timeout_seconds, predict.token(), predict.tls()
  )
  if not (hosts.is_loopback(server.host) or _IS_MINE.value):
    raise errors.UserError(
      f'{server.host} is another machine, and a load test may keep others from '
      'being answered. Give --is_mine if that is intended.'
    )
  out = pathlib.Path(_OUT.value)
  if not out.parent.is_dir():
    raise errors.UserError(f'--out {out}: there is no folder {out.parent}')
  client, content = _client(server)
  result = load.run(
    client,
    content,
    _CONCURRENCY.value,
    _SECONDS.value,
    _MAX_REQUESTS.value,
  )
  number = len(result.milliseconds)
  title = (
    f'{server.url}: {_CONCURRENCY.value} clients, {number:,} answers in '
    f'{result.seconds:.1f} s'
  )
  print(f'{title} ({number / result.seconds:,.1f} a second)')
  for reason, count in sorted(result.failures.items()):
    print(f'failed: {count:,} x {reason}')
  if not number:
    raise errors.UserError('no request was answered')
  percentiles = result.percentiles().items()
  print('  '.join(f'{name} {value:.4g} ms' for name, value in percentiles))
  with style.applied():
    figure = latency_plot.draw(title, result.starts, result.milliseconds)
    png = style.to_png(figure)
  with durable.replacing(out, 'wb') as file:
    file.write(png)
  print(f'The picture is {out}.')


def _client(
  server: clients.Server,
) -> tuple[Callable[[], AbstractContextManager[clients.Ask]], bytes]:
  """Returns what makes a client, and what it asks."""
  body = predict.request_body()
  if not server.is_grpc:
    client = functools.partial(clients.rest, server, predict.path())
    return client, json.dumps(body).encode()
  from tff_algos.serving import messages

  message = messages.predict_request(
    server, flags.FLAGS.model, flags.FLAGS.version, body
  )
  return functools.partial(clients.grpc_method, server, 'Predict'), message


if __name__ == '__main__':
  command.run(load_test)
