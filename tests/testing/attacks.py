"""Attacks on a running model server, and what honest clients notice.

  python -m tests.testing.attacks --seconds=10 [--attacks=large_json,...] [--control]

starts `binaries.serve`, asks it as two honest clients do (REST and gRPC, one after
the other with pauses), first in quiet, then under each attack, and prints a table.

As a control, another server of the same machine is attacked: what honest clients
notice then is that the machine is shared, and nothing that their server could mend.
"""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
import numpy as np
import psutil

from tests.testing import patience
from tff_algos.serving import clients

WIDTH = 64
_PAUSE_SECONDS = 0.005
_LARGE_BYTES = 15 * 2**20
_PREDICT = '/tensorflow.serving.PredictionService/Predict'
_START_SECONDS = 120


class Ports(NamedTuple):
  rest_api_port: int
  port: int


class Seen(NamedTuple):
  """What happened during an attack.

  Attributes:
    milliseconds: Latency of each honest request that was answered rightly: REST,
      gRPC.
    num_failures: Honest requests that were refused or answered wrongly.
    num_attacks: Hostile requests.
    num_internal: Hostile requests that were answered by an error of the server.
    mebibytes: Most resident memory of the server and its children.
    num_descriptors: Most open files of the server.
  """

  milliseconds: list[list[float]]
  num_failures: int
  num_attacks: int
  num_internal: int
  mebibytes: float
  num_descriptors: int

  def percentile(self, q: float) -> float:
    """Returns the percentile of the API that suffers more."""
    return max(float(np.percentile(one, q)) for one in self.milliseconds)


def write_model(folder: pathlib.Path) -> None:
  """Writes a linear classifier of `WIDTH` inputs, whose class is the largest."""
  import tensorflow as tf

  module = tf.Module()

  def predict(x):
    logits = x[:, :10]
    return {
      'logits': logits,
      'probabilities': tf.nn.softmax(logits),
      'class_id': tf.argmax(logits, axis=1),
    }

  specs = [tf.TensorSpec([None, WIDTH], tf.float32, name='x')]
  signature = tf.function(predict, input_signature=specs)
  tf.saved_model.save(
    module, str(folder / 'linear' / '1'), {'serving_default': signature}
  )


@contextlib.contextmanager
def server(folder: pathlib.Path, *flags: str) -> Iterator[tuple[Ports, int]]:
  """Runs `binaries.serve` over a folder; yields its ports and process id."""
  port_file = folder.parent / 'ports.json'
  with open(folder.parent / 'server.log', 'w') as log:
    process = subprocess.Popen(
      [
        *(sys.executable, '-m', 'binaries.serve'),
        *('--rest_api_port=0', '--port=0', f'--port_file={port_file}'),
        *(f'--model_base_path={folder}', *flags),
      ],
      stderr=log,
    )
  try:
    patience.until(lambda: port_file.exists(), _START_SECONDS, [process])
    yield Ports(**json.loads(port_file.read_text())), process.pid
  finally:
    process.terminate()
    process.wait(60)


def measure(
  ports: Ports,
  pid: int,
  attack: str | None,
  seconds: float,
  attacked: Ports | None = None,
) -> Seen:
  """Asks as honest clients do while an attack goes on, or in quiet.

  Args:
    ports: Of the server that honest clients ask.
    pid: Of its process.
    attack: One of `ATTACKS`, or None.
    seconds: Duration.
    attacked: The server that is attacked, if that is another one.

  Returns:
    What the honest clients noticed.
  """
  context = multiprocessing.get_context('spawn')
  stop, results = context.Event(), context.Queue()
  attacks = context.Queue()
  honest = [
    context.Process(target=_honest, args=(ask, ports, stop, results))
    for ask in (_honest_rest, _honest_grpc)
  ]
  hostile = context.Process(
    target=_attack, args=(attack, attacked or ports, stop, attacks)
  )
  mebibytes, num_descriptors = 0.0, 0
  for one in filter(None, (ports, attacked)):
    _exchange(one, _post(_rows_body(300)))  # Starts what answers large ones.
  for process in honest:
    process.start()
  for _ in honest:
    results.get()  # They have asked once.
  if attack:
    hostile.start()
    attacks.get()
  start = time.monotonic()
  while time.monotonic() < start + seconds:
    found, descriptors = _resources(pid)
    mebibytes = max(mebibytes, found)
    num_descriptors = max(num_descriptors, descriptors)
    time.sleep(0.1)
  stop.set()
  seen = [results.get() for _ in honest]
  tried, internal = attacks.get() if attack else (0, 0)
  for process in [*honest, *([hostile] if attack else [])]:
    process.join(30)
    process.kill()
  return Seen(
    [milliseconds for milliseconds, _ in seen],
    sum(failures for _, failures in seen),
    tried,
    internal,
    mebibytes,
    num_descriptors,
  )


def _resources(pid: int) -> tuple[float, int]:
  process = psutil.Process(pid)
  total = 0
  for one in [process, *process.children(recursive=True)]:
    with contextlib.suppress(psutil.Error):
      total += one.memory_info().rss
  return total / 2**20, process.num_fds()


def row(rng: np.random.Generator) -> np.ndarray:
  return rng.normal(size=[WIDTH]).astype(np.float32)


def _honest(ask: Callable[..., Any], ports: Ports, stop, results) -> None:
  milliseconds, failures = [], 0
  rng = np.random.default_rng(0)
  with ask(ports) as call:
    call(row(rng))
    results.put(None)
    while not stop.is_set():
      x = row(rng)
      start = time.perf_counter()
      try:
        is_right = call(x) == int(np.argmax(x[:10]))
      except Exception as error:
        print(f'An honest request failed: {error!r}', file=sys.stderr)
        is_right = False
      if is_right:
        milliseconds.append(1000 * (time.perf_counter() - start))
      else:
        failures += 1
      time.sleep(_PAUSE_SECONDS)
  results.put((milliseconds, failures))


@contextlib.contextmanager
def _honest_rest(ports: Ports):
  server = clients.Server(f'http://127.0.0.1:{ports.rest_api_port}', 60)
  with clients.rest(server, '/v1/models/linear:predict') as ask:

    def call(x: np.ndarray) -> int:
      reply = json.loads(ask(json.dumps({'instances': [x.tolist()]}).encode()))
      return reply['predictions'][0]['class_id']

    yield call


@contextlib.contextmanager
def _honest_grpc(ports: Ports):
  from tensorflow_serving.apis import predict_pb2

  with grpc.insecure_channel(f'127.0.0.1:{ports.port}') as channel:
    ask = channel.unary_unary(_PREDICT)

    def call(x: np.ndarray) -> int:
      content = ask(_predict_request(x[np.newaxis]), timeout=60)
      reply = predict_pb2.PredictResponse.FromString(content)
      return reply.outputs['class_id'].int64_val[0]

    yield call


def _tensor(x: np.ndarray, as_values: bool = False) -> bytes:
  from tensorflow.core.framework import tensor_pb2, types_pb2

  proto = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT)
  for size in x.shape:
    proto.tensor_shape.dim.add(size=size)
  if as_values:
    proto.float_val.extend(x.ravel().tolist())
  else:
    proto.tensor_content = x.tobytes()
  return proto.SerializeToString()


def _predict_request(x: np.ndarray, as_values: bool = False) -> bytes:
  from tensorflow_serving.apis import predict_pb2

  request = predict_pb2.PredictRequest()
  request.model_spec.name = 'linear'
  request.inputs['x'].ParseFromString(_tensor(x, as_values))
  return request.SerializeToString()


def _post(body: bytes, length: int | None = None) -> bytes:
  head = 'POST /v1/models/linear:predict HTTP/1.1\r\nConnection: close\r\n'
  return (
    f'{head}Host: x\r\nContent-Length: {length or len(body)}\r\n\r\n'.encode()
    + body
  )


def _rows_body(num_rows: int) -> bytes:
  rows = np.random.default_rng(1).normal(size=[num_rows, WIDTH])
  return json.dumps({'instances': rows.round(15).tolist()}).encode()


def _attack(attack: str, ports: Ports, stop, results) -> None:
  num_workers, prepare = ATTACKS[attack]
  work = prepare(ports)
  results.put(None)
  counts = np.zeros([num_workers, 2], int)

  def run(i: int) -> None:
    rng = random.Random(i)
    while not stop.is_set():
      try:
        counts[i, 1] += bool(work(rng, stop))
      except OSError:
        time.sleep(0.05)
      counts[i, 0] += 1

  threads = [
    threading.Thread(target=run, args=(i,), daemon=True)
    for i in range(num_workers)
  ]
  for thread in threads:
    thread.start()
  stop.wait()
  for thread in threads:
    thread.join(0.5)
  results.put(tuple(counts.sum(axis=0).tolist()))
  results.close()
  results.join_thread()
  import os

  os._exit(0)


def _connect(ports: Ports) -> socket.socket:
  address = ('127.0.0.1', ports.rest_api_port)
  return socket.create_connection(address, timeout=120)


def _exchange(ports: Ports, content: bytes, seconds: float = 120) -> bool:
  """Sends bytes and reads to the end of the answer; is it a 500?

  Who waits for longer than some seconds leaves.
  """
  with _connect(ports) as connection:
    connection.settimeout(seconds)
    with contextlib.suppress(OSError):
      connection.sendall(content)
    first = b''
    while chunk := connection.recv(2**16):
      first = first or chunk
  return first.startswith(b'HTTP/1.1 500')


def _large_json(ports: Ports):
  content = _post(_rows_body(_LARGE_BYTES // (WIDTH * 21)))
  return lambda rng, stop: _exchange(ports, content)


def _many_rows(ports: Ports):
  body = json.dumps({'instances': [[0] * WIDTH] * 330}).encode()
  assert len(body) < 65_536
  return lambda rng, stop: _exchange(ports, _post(body))


def _oversized(ports: Ports):
  content = _post(b' ' * 40 * 2**20)
  return lambda rng, stop: _exchange(ports, content)


def _brackets(ports: Ports):
  deep = _post(b'{"instances": [' + b'[],' * (5 * 2**20) + b'[]]}')
  return lambda rng, stop: _exchange(ports, deep)


def _slow(ports: Ports, start: bytes):
  def work(rng: random.Random, stop) -> bool:
    with _connect(ports) as connection:
      connection.sendall(start)
      while not stop.wait(1 + rng.random()):
        connection.sendall(b'1')
    return False

  return work


def _slow_headers(ports: Ports):
  return _slow(ports, b'POST /v1/models/linear:predict HTTP/1.1\r\nX: ')


def _slow_bodies(ports: Ports):
  return _slow(ports, _post(b'{"instances": [[', 10_000))


def _slow_large_bodies(ports: Ports):
  return _slow(ports, _post(b'[' * 100_000, _LARGE_BYTES))


def _slow_readers(ports: Ports):
  content = _post(_rows_body(5000))

  def work(rng: random.Random, stop) -> bool:
    with _connect(ports) as connection:
      connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
      connection.sendall(content)
      stop.wait(20)
    return False

  return work


def _connections(ports: Ports):
  def work(rng: random.Random, stop) -> bool:
    with _connect(ports) as connection:
      connection.sendall(b'GET /v1/')
    return False

  return work


def _gone(ports: Ports):
  content = _post(_rows_body(40))

  def work(rng: random.Random, stop) -> bool:
    with _connect(ports) as connection:
      connection.sendall(content)
    return False

  return work


def _hostile_http(ports: Ports):
  good = _post(_rows_body(1))

  def work(rng: random.Random, stop) -> bool:
    content = bytearray(good)
    for _ in range(rng.randrange(1, 20)):
      content[rng.randrange(len(content))] = rng.randrange(256)
    # The server may wait for more than damaged lengths announce.
    return _exchange(ports, bytes(content), 0.5)

  return work


def _large_grpc(ports: Ports):
  num_rows = _LARGE_BYTES // (4 * WIDTH)
  messages = [
    _predict_request(np.ones([num_rows, WIDTH], np.float32), as_values)
    for as_values in (False, True)
  ]
  return _calls(ports, lambda rng: rng.choice(messages), 120)


def _malformed_grpc(ports: Ports):
  good = _predict_request(np.ones([1, WIDTH], np.float32))

  def message(rng: random.Random) -> bytes:
    if rng.random() < 0.3:
      return rng.randbytes(rng.randrange(100))
    content = bytearray(good)
    for _ in range(rng.randrange(1, 4)):
      content[rng.randrange(60)] = rng.randrange(256)
    return bytes(content)

  return _calls(ports, message, 30)


def _calls(ports: Ports, message: Callable[[random.Random], bytes], timeout):
  channel = grpc.insecure_channel(f'127.0.0.1:{ports.port}')
  call = channel.unary_unary(_PREDICT)

  def work(rng: random.Random, stop) -> bool:
    try:
      call(message(rng), timeout=timeout)
    except grpc.RpcError as error:
      return error.code() in (
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
      )
    return False

  return work


def _cancelled_grpc(ports: Ports):
  channel = grpc.insecure_channel(f'127.0.0.1:{ports.port}')
  call = channel.unary_unary(_PREDICT)
  content = _predict_request(np.ones([1, WIDTH], np.float32))

  def work(rng: random.Random, stop) -> bool:
    reply = call.future(content, timeout=30)
    time.sleep(rng.random() * 0.002)
    reply.cancel()
    return False

  return work


def _silent_grpc(ports: Ports):
  def work(rng: random.Random, stop) -> bool:
    with grpc.insecure_channel(
      f'127.0.0.1:{ports.port}',
      options=[('grpc.use_local_subchannel_pool', 1)],
    ) as channel:
      call = channel.stream_unary(_PREDICT)
      try:
        call(iter(lambda: stop.wait(60) and None, None), timeout=120)
      except grpc.RpcError as error:
        return error.code() == grpc.StatusCode.INTERNAL
    return False

  return work


# Name -> number of attackers, and what prepares one attempt of each.
ATTACKS = {
  'large_json': (8, _large_json),
  'many_rows': (8, _many_rows),
  'brackets': (8, _brackets),
  'oversized': (8, _oversized),
  'slow_headers': (400, _slow_headers),
  'slow_bodies': (400, _slow_bodies),
  'slow_large_bodies': (40, _slow_large_bodies),
  'slow_readers': (40, _slow_readers),
  'connections': (8, _connections),
  'gone': (8, _gone),
  'hostile_http': (8, _hostile_http),
  'large_grpc': (8, _large_grpc),
  'malformed_grpc': (8, _malformed_grpc),
  'cancelled_grpc': (8, _cancelled_grpc),
  'silent_grpc': (80, _silent_grpc),
}


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('--seconds', type=float, default=10)
  parser.add_argument('--attacks', default=','.join(ATTACKS))
  parser.add_argument('--control', action='store_true')
  arguments = parser.parse_args()
  chosen = arguments.attacks.split(',')
  unknown = sorted({*chosen} - {*ATTACKS})
  if unknown:
    parser.error(
      f'--attacks: unknown {unknown}; there are {", ".join(ATTACKS)}'
    )
  with contextlib.ExitStack() as stack:
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
    models, others = folder / 'models', folder / 'control' / 'models'
    write_model(models)
    write_model(others)
    print(
      '| attack | tries | INTERNAL | honest | failed | p50 ms | p99 ms | max ms '
      '| MiB | files | log lines |'
    )
    for attack in [None, *chosen]:
      with server(models) as (ports, pid), contextlib.ExitStack() as control:
        other = None
        if arguments.control:
          other, _ = control.enter_context(server(others))
        seen = measure(ports, pid, attack, arguments.seconds, other)
      log = (folder / 'server.log').read_text()
      cells = [
        attack or 'quiet',
        seen.num_attacks,
        seen.num_internal,
        sum(map(len, seen.milliseconds)),
        seen.num_failures,
        *(f'{seen.percentile(q):.1f}' for q in (50, 99, 100)),
        round(seen.mebibytes),
        seen.num_descriptors,
        len(log.splitlines()),
      ]
      print('| ' + ' | '.join(map(str, cells)) + ' |', flush=True)


if __name__ == '__main__':
  main()
