"""Processes of a distributed training, from the variable TF_CONFIG.

TF_CONFIG is TensorFlow's variable, set by Kubernetes operators and managed
training services:

    {"cluster": {"worker": ["10.0.0.7:8000", "10.0.0.8:8000"]},
     "task": {"type": "worker", "index": 0}}
"""

import fractions
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tff_algos.core import checks, errors, hosts

_VARIABLE = 'TF_CONFIG'
# A chief is the first worker, under another name.
_TYPES = ('chief', 'worker')


class Cluster(NamedTuple):
  """The processes of a training, and the index of this one.

  Attributes:
    addresses: `host:port` of every process; none if there is only this one.
    index: Index of this process, from 0. Process 0 leads: it alone writes.
    speeds: Relative speed of each process, > 0; none if they are alike.
    owns_shards: Whether a client is computed by the process that has its shard,
      whose number modulo the processes is its index.
  """

  addresses: tuple[str, ...] = ()
  index: int = 0
  speeds: tuple[float, ...] = ()
  owns_shards: bool = False

  @property
  def is_leader(self) -> bool:
    """Returns whether this is process 0."""
    return self.index == 0

  @property
  def is_on_loopback(self) -> bool:
    """Returns whether all processes are on this machine, by their addresses."""
    return all(
      hosts.is_loopback(hosts.split(address)[0]) for address in self.addresses
    )

  @property
  def port(self) -> int:
    """Returns the port of this process."""
    return hosts.split(self.addresses[self.index])[1]

  def divide(
    self, num_clients: int, shards: np.ndarray | None
  ) -> list[np.ndarray]:
    """Returns the positions of each process's clients, ascending.

    They are as many as its speed is a part of all speeds, to one client; exact,
    as all processes must find the same.

    Args:
      num_clients: Number of clients.
      shards: Shard of each, int `[num_clients]`; None if they are in none, and
        every process may read all.
    """
    size = len(self.addresses)
    if self.owns_shards and shards is not None:
      return [np.flatnonzero(shards % size == i) for i in range(size)]
    speeds = [fractions.Fraction(one) for one in self.speeds or [1.0] * size]
    stops = [
      num_clients * sum(speeds[:i]) // sum(speeds) for i in range(1, size)
    ]
    return np.split(np.arange(num_clients), stops)

  def name_of(self, index: int) -> str:
    """Returns the name of a process in error texts."""
    return f'process {index} ({self.addresses[index]})'


ALONE = Cluster()


def from_environment(
  environment: Mapping[str, str] = os.environ,
) -> Cluster:
  """Returns the cluster of TF_CONFIG; `ALONE` if it is unset or names one.

  Raises:
    ConfigError: If TF_CONFIG is malformed or lacks the task of this process.
  """
  text = environment.get(_VARIABLE, '').strip()
  if not text:
    return ALONE
  try:
    values = json.loads(text)
  except ValueError as error:
    raise errors.ConfigError(
      f'{_VARIABLE} must be JSON, got {text!r}: {error}'
    ) from None
  jobs = _mapping(values, 'cluster')
  if not jobs:
    return ALONE
  for job in jobs:
    checks.check_one_of(f'a job of {_VARIABLE} cluster', job, _TYPES)
  tasks = [
    (job, index, address)
    for job in _TYPES
    for index, address in enumerate(_addresses(jobs, job))
  ]
  task = _mapping(values, 'task')
  ours: tuple[Any, Any] = (task.get('type'), task.get('index'))
  known = [(job, index) for job, index, _ in tasks]
  # Some operators write the index as a string.
  if isinstance(ours[1], str) and ours[1].isdecimal():
    ours = (ours[0], int(ours[1]))
  if ours not in known or isinstance(ours[1], bool):
    listed = ', '.join(f'{job} {index}' for job, index in known) or 'none'
    raise errors.ConfigError(
      f'{_VARIABLE} task must name one of the tasks of cluster ({listed}), got '
      f'type {ours[0]!r}, index {ours[1]!r}'
    )
  addresses = tuple(address for *_, address in tasks)
  if len(set(addresses)) < len(addresses):
    raise errors.ConfigError(
      f'{_VARIABLE} cluster must give every process an address of its own, got '
      f'{", ".join(addresses)}'
    )
  return Cluster(addresses, known.index(ours)) if len(tasks) > 1 else ALONE


def _mapping(values: Any, key: str) -> Mapping[str, Any]:
  found = values.get(key, {}) if isinstance(values, Mapping) else None
  if not isinstance(found, Mapping):
    raise errors.ConfigError(
      f'{_VARIABLE} must be a mapping with the mappings cluster and task, got '
      f'{values!r}'
    )
  return found


def _addresses(jobs: Mapping[str, Any], job: str) -> list[str]:
  addresses = jobs.get(job, [])
  if not isinstance(addresses, list):
    raise errors.ConfigError(
      f'{_VARIABLE} cluster.{job} must be a list of addresses, got '
      f'{addresses!r}'
    )
  return [
    checks.check_address(f'{_VARIABLE} cluster.{job}[{i}]', address)
    for i, address in enumerate(addresses)
  ]
