"""Metrics for Prometheus, request ids and the access log of a server."""

import contextlib
import datetime
import json
import re
import sys
import threading
import time
import uuid
from typing import NamedTuple

import prometheus_client

from tff_algos.serving import models

REQUEST_ID = 'x-request-id'

_ID = re.compile(r'[A-Za-z0-9._-]{1,64}')
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 25)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
# After its last request, a version that is not loaded any more keeps its series
# for so long: each Prometheus server scrapes more often.
_KEPT_SECONDS = 3600.0


class Call(NamedTuple):
  """One request that has ended.

  Attributes:
    request_id: Its id.
    peer: Address of the client.
    api: `rest` or `grpc`.
    method: What was asked: `predict`, `Predict`, ...; '' if that is unknown.
    model: Name of the model that was asked for, as the client wrote it.
    version: Version of it that answered or refused; None if none did.
    status: Status of HTTP, or name of gRPC's code.
    seconds: Time from its headers to the end of its answer.
    caller: Name of the token; '' without one.
    certificate: Name of the client's certificate; '' without one.
  """

  request_id: str
  peer: str
  api: str
  method: str
  model: str
  version: int | None
  status: str
  seconds: float
  caller: str
  certificate: str


class Monitor:
  """Metrics of one server over a model store.

  Attributes:
    lane_requests: Gauge by lane: requests that wait or are answered.
    batch_requests: Histogram of the requests that one call of a model answers.
  """

  def __init__(self, store: models.ModelStore, has_access_log: bool):
    self._store = store
    self._has_access_log = has_access_log
    self._scraped = threading.Lock()
    # (model, version) -> time of its last request.
    self._last_asked: dict[tuple[str, int], float] = {}
    self._registry = prometheus_client.CollectorRegistry()
    names = ['api', 'method', 'model', 'version']
    self._requests = prometheus_client.Counter(
      'tff_algos_requests',
      'Requests that have ended.',
      [*names, 'status'],
      registry=self._registry,
    )
    self._seconds = prometheus_client.Histogram(
      'tff_algos_request_seconds',
      'Time from the headers of a request to the end of its answer.',
      names,
      buckets=_BUCKETS,
      registry=self._registry,
    )
    self.lane_requests = prometheus_client.Gauge(
      'tff_algos_lane_requests',
      'Requests that wait in a lane or are answered.',
      ['lane'],
      registry=self._registry,
    )
    self.batch_requests = prometheus_client.Histogram(
      'tff_algos_batch_requests',
      'Small requests that one call of a model answers.',
      buckets=_BATCH_BUCKETS,
      registry=self._registry,
    )
    self._labels = prometheus_client.Gauge(
      'tff_algos_label_version',
      'The version that has a label.',
      ['model', 'label'],
      registry=self._registry,
    )
    self._canary_share = prometheus_client.Gauge(
      'tff_algos_canary_share',
      'Share of the clients that the canary of a model answers.',
      ['model'],
      registry=self._registry,
    )
    self._versions = prometheus_client.Gauge(
      'tff_algos_model_version',
      'The newest version that is loaded.',
      ['model'],
      registry=self._registry,
    )

  def text(self) -> bytes:
    """Returns the metrics in Prometheus's text format."""
    with self._scraped:
      self._remove_old()
      self._versions.clear()
      for model, version in self._store.newest_loaded().items():
        self._versions.labels(model).set(version)
      self._labels.clear()
      self._canary_share.clear()
      for model, labels in self._store.labels.items():
        for label, version in labels.versions.items():
          self._labels.labels(model, label).set(version)
        if labels.canary_share is not None:
          self._canary_share.labels(model).set(labels.canary_share)
      return prometheus_client.generate_latest(self._registry)

  def _remove_old(self) -> None:
    """Removes the series of versions that are not loaded any more."""
    start = time.monotonic() - _KEPT_SECONDS
    for (model, version), asked in [*self._last_asked.items()]:
      if asked < start and not self._store.is_loaded(model, version):
        del self._last_asked[model, version]
        labels = {'model': model, 'version': str(version)}
        self._requests.remove_by_labels(labels)
        self._seconds.remove_by_labels(labels)

  def record(self, call: Call) -> None:
    """Counts a request, and writes its line of the access log to stdout."""
    # Clients choose names: those of models alone are labels.
    model, version = '', ''
    if call.version is not None:
      model, version = call.model, str(call.version)
      self._last_asked[call.model, call.version] = time.monotonic()
    labels = (call.api, call.method, model, version)
    self._requests.labels(*labels, call.status).inc()
    self._seconds.labels(*labels).observe(call.seconds)
    if self._has_access_log:
      now = datetime.datetime.now(datetime.UTC)
      line = {
        'time': now.isoformat(timespec='milliseconds'),
        **call._asdict(),
        'model': call.model[:200],
        'version': version,
        'seconds': round(call.seconds, 6),
      }
      # A reader that has gone is no reason to refuse requests. Without `file`
      # CPython 3.11 crashes if another thread replaces sys.stdout meanwhile,
      # which may also write between a text and its `end`.
      with contextlib.suppress(OSError):
        print(f'{json.dumps(line)}\n', end='', file=sys.stdout, flush=True)


def request_id(given: str | bytes | None) -> str:
  """Returns the id that a client gave, if it is a plain word, or a new one."""
  if isinstance(given, str) and _ID.fullmatch(given):
    return given
  return uuid.uuid4().hex
