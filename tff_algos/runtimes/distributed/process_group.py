"""Group of processes, on one machine or many, that divide a cohort.

All run the same program: the same rounds, the same plan, the same states. Each
computes its share of a phase call's clients; TensorFlow's collectives add the
sums by a ring all-reduce and gather the collected results. The ring's order is
fixed, so timing changes no bit, and all processes continue with the server
state computed by process 0, so machines of different kinds do not diverge.

Process 0 alone writes. The workdir must be readable by all.
"""

import contextlib
import math
import re
import threading
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from tff_algos.core import errors
from tff_algos.core.structures import Structure
from tff_algos.runtimes import cohort as cohort_lib
from tff_algos.runtimes import interrupts, loopback
from tff_algos.runtimes.distributed import peer_processes as peers_lib
from tff_algos.runtimes.distributed import process_cluster as cluster_lib

# A lost process breaks the ring at once; its name arrives a moment later.
_NEWS_SECONDS = 5.0
_POLL_SECONDS = 0.1
# TensorFlow's errors on missed heartbeats: process 0's on another process, and
# another's on process 0.
_SILENT_TASK = (
  r'task:(\d+) '
  r'(?:heartbeat timeout|while calling /tensorflow.CoordinationService)'
)


class ProcessGroup:
  """The processes that share a training: here, this process alone.

  All make the same calls in order. Every method but `positions` raises
  RuntimeFailureError if a process is lost.
  """

  @property
  def reads_all(self) -> bool:
    """Returns whether any client may be one of this process."""
    return True

  def positions(self, cohort: cohort_lib.Cohort) -> np.ndarray | slice:
    """Returns the positions of this process's clients; there may be none."""
    del cohort
    return slice(None)

  def check(self) -> None:
    """Returns if no process is lost."""

  def sum(self, structure: Structure) -> Structure:
    """Returns the sum over all processes of a structure of numbers."""
    return structure

  def gather(
    self, parts: list[Structure], cohort: cohort_lib.Cohort
  ) -> list[Structure]:
    """Returns the rows of all processes.

    Args:
      parts: Structures of arrays; together one row for each client of this
        process.
      cohort: The clients of all.

    Returns:
      Parts of `cohort.size` rows together. They are in the order of the cohort
      only if every process gives its rows in that of its positions. The
      vectorized runtime does not (it computes large clients first), so its rows
      hold the index of their client.
    """
    del cohort
    return parts

  def agree(self, structure: Structure) -> Structure:
    """Returns process 0's values, bit for bit; shapes are equal on all."""
    return structure


ALONE = ProcessGroup()


@contextlib.contextmanager
def open_group(
  cluster: cluster_lib.Cluster,
  identity: Mapping[str, Any],
  timeout_seconds: float,
  trust_network: bool = False,
) -> Generator[ProcessGroup]:
  """Opens the group of a cluster; must come before TensorFlow's first use.

  An error that ends the block here ends it on all processes: they raise an
  error that names this one.

  Args:
    cluster: The processes; `process_cluster.ALONE` gives `ALONE`.
    identity: Config entries that must be equal on all processes, JSON-ready.
    timeout_seconds: Maximal wait for the other processes to start, > 0.
    trust_network: Whether addresses beyond loopback are accepted, where
      TensorFlow's servers authenticate nobody.

  Raises:
    ConfigError: If a process has another identity, or an address is beyond
      loopback without `trust_network`.
    RuntimeFailureError: If a process does not start, or the address of this one
      is in use.
  """
  if not cluster.addresses:
    yield ALONE
    return
  loopback.require_trust('TF_CONFIG', cluster.addresses, trust_network)
  with peers_lib.Peers(cluster, identity, timeout_seconds) as peers:
    _start_server(cluster, peers)
    interrupts.take_back()
    yield CollectiveGroup(cluster, peers)


class CollectiveGroup(ProcessGroup):
  """Two processes or more; see `open_group`."""

  def __init__(self, cluster: cluster_lib.Cluster, peers: peers_lib.Peers):
    """Takes over a started server."""
    # Otherwise a process that has received everything, and is sending to a lost
    # one, would block until heartbeats are missed.
    peers.when_lost(
      lambda lost: context.context().abort_collective_ops(  # pyright: ignore[reportOptionalMemberAccess]
        tf.errors.UNAVAILABLE, lost
      )
    )
    self._cluster = cluster
    self._size = len(cluster.addresses)
    self._peers = peers
    # (operation, dtype, shape) -> its key, the same on all processes.
    self._keys: dict[Any, int] = {}

  @property
  def reads_all(self) -> bool:
    """See `ProcessGroup`."""
    return not self._cluster.owns_shards

  def positions(self, cohort: cohort_lib.Cohort) -> np.ndarray:
    """See `ProcessGroup`."""
    return self._divide(cohort)[self._cluster.index]

  def check(self) -> None:
    """See `ProcessGroup`."""
    self._peers.check()

  def sum(self, structure: Structure) -> Structure:
    """See `ProcessGroup`; one collective a dtype."""
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(structure)]
    sums = list(leaves)
    for dtype in sorted({leaf.dtype.str for leaf in leaves}):
      chosen = [i for i, leaf in enumerate(leaves) if leaf.dtype.str == dtype]
      flat = np.concatenate([leaves[i].ravel() for i in chosen])
      total = self._reduce(flat) if flat.size else flat
      stops = np.cumsum([leaves[i].size for i in chosen])
      for i, part in zip(chosen, np.split(total, stops[:-1]), strict=True):
        sums[i] = part.reshape(leaves[i].shape)
    return tf.nest.pack_sequence_as(structure, sums)

  def gather(
    self, parts: list[Structure], cohort: cohort_lib.Cohort
  ) -> list[Structure]:
    """See `ProcessGroup`; returns one part."""
    ours = cohort_lib.concatenate(parts)
    if not tf.nest.flatten(ours):
      return [ours]
    words = _pack(ours)
    positions = self._divide(cohort)
    sizes = [len(one) for one in positions]
    longest = max(sizes)
    padded = np.pad(words, ((0, longest - len(words)), (0, 0)))
    gathered = self._run(tf.raw_ops.CollectiveGatherV2, padded)
    rows = [
      part[:size]
      for part, size in zip(np.split(gathered, self._size), sizes, strict=True)
    ]
    in_order = np.argsort(np.concatenate(positions))
    return [_unpack(np.concatenate(rows)[in_order], ours)]

  def agree(self, structure: Structure) -> Structure:
    """See `ProcessGroup`."""
    if not tf.nest.flatten(structure):
      return structure
    rows = tf.nest.map_structure(lambda leaf: np.asarray(leaf)[None], structure)
    words = _pack(rows)
    if not self._cluster.is_leader:
      words = np.zeros_like(words)
    # As integers, the sum with zeros is exact for any bit pattern.
    agreed = _unpack(self._reduce(words), rows)
    return tf.nest.map_structure(lambda leaf: leaf[0], agreed)

  def _divide(self, cohort: cohort_lib.Cohort) -> list[np.ndarray]:
    return self._cluster.divide(cohort.size, cohort.shards)

  def _reduce(self, values: np.ndarray) -> np.ndarray:
    return self._run(
      tf.raw_ops.CollectiveReduceV2, values, merge_op='Add', final_op='Id'
    )

  def _run(self, operation: Any, values: np.ndarray, **options) -> np.ndarray:
    key = (operation.__name__, values.dtype.str, values.shape)
    self.check()
    try:
      with tf.device('CPU:0'):
        return operation(
          input=tf.constant(values),
          group_size=self._size,
          group_key=1,
          instance_key=self._keys.setdefault(key, len(self._keys) + 1),
          communication_hint='ring',
          ordering_token=[],
          **options,
        ).numpy()
    except tf.errors.OpError as error:
      self._peers.check(_NEWS_SECONDS)
      raise errors.LostProcessError(_words_of(error, self._cluster)) from error


def _start_server(cluster: cluster_lib.Cluster, peers: peers_lib.Peers) -> None:
  """Starts TensorFlow's server, and returns when the servers are connected.

  The strategy also starts the coordination service, whose heartbeats end the
  collectives if a machine does not respond.
  """
  resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec({'worker': list(cluster.addresses)}),
    task_type='worker',
    task_id=cluster.index,
    num_accelerators={'GPU': 0},  # The runtime uses the GPUs.
    rpc_layer='grpc',
  )
  failures: list[Exception] = []

  def start():
    try:
      tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except Exception as error:
      failures.append(error)

  # TensorFlow waits without end for a process that has died.
  thread = threading.Thread(target=start, daemon=True)
  thread.start()
  while thread.is_alive():
    thread.join(_POLL_SECONDS)
    if cluster.is_on_loopback:
      # TensorFlow's server listens on every interface, from some moment on.
      loopback.close_port(cluster.port)
    peers.check()
  if failures:
    raise errors.RuntimeFailureError(
      f'the TensorFlow server of {cluster.name_of(cluster.index)} did not '
      f'start: {_in_one_line(failures[0])}. Is its address in TF_CONFIG of '
      'this machine, and free?'
    ) from failures[0]


def _words_of(error: tf.errors.OpError, cluster: cluster_lib.Cluster) -> str:
  """Returns the process that stopped responding, or TensorFlow's message."""
  silent = re.search(_SILENT_TASK, error.message)
  if silent:
    return (
      f'{cluster.name_of(int(silent[1]))} does not answer any more. Start all '
      'processes again to resume from the latest checkpoint'
    )
  return f'a collective operation failed: {_in_one_line(error)}'


def _in_one_line(error: Exception) -> str:
  return ' '.join(str(error).split())


def _pack(structure: Structure) -> np.ndarray:
  """Returns arrays `[rows, ...]` as their bytes, int32 `[rows, words]`."""
  parts = [
    np.ascontiguousarray(leaf)
    .reshape(len(leaf), math.prod(leaf.shape[1:]))
    .view(np.uint8)
    for leaf in tf.nest.flatten(structure)
  ]
  rows = np.concatenate(parts, axis=1)
  padding = 4 - rows.shape[1] % 4  # At least one word.
  return np.pad(rows, ((0, 0), (0, padding))).view(np.int32)


def _unpack(words: np.ndarray, template: Structure) -> Structure:
  """Returns the arrays of packed rows; dtypes and shapes as in a template."""
  data = np.ascontiguousarray(words).view(np.uint8)
  leaves, start = [], 0
  for leaf in tf.nest.flatten(template):
    stop = start + math.prod(leaf.shape[1:]) * leaf.dtype.itemsize
    part = np.ascontiguousarray(data[:, start:stop]).view(leaf.dtype)
    leaves.append(part.reshape(len(words), *leaf.shape[1:]))
    start = stop
  return tf.nest.pack_sequence_as(template, leaves)
