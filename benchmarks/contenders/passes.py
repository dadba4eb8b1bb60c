"""Passes over all clients of a published dataset, batch by batch."""

import abc
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks import workload as workload_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema
from tff_algos.runtimes import client_sources


class Seen(NamedTuple):
  """What a pass has met; equal for all who do the same work.

  Attributes:
    num_batches: float32 `[]`.
    num_examples: float32 `[]`.
    first_pixels: Sum of one value of each batch, so that batches are made.
  """

  num_batches: tf.Tensor
  num_examples: tf.Tensor
  first_pixels: tf.Tensor


def nothing_seen() -> Seen:
  """Returns the start of a pass."""
  return Seen(*(tf.constant(0.0) for _ in Seen._fields))


def look(seen: Seen, x: tf.Tensor, y: tf.Tensor, mask: tf.Tensor) -> Seen:
  """Returns what was seen and one more batch."""
  first = tf.reshape(x, [-1])[0] + tf.cast(y[0], tf.float32)
  return Seen(
    seen.num_batches + 1.0,
    seen.num_examples + tf.reduce_sum(mask),
    seen.first_pixels + first,
  )


class PassContender(abc.ABC):
  """A round is one pass over all clients.

  Attributes:
    source: The clients.
    client_ids: In the dataset's order.
  """

  def __init__(self, dataset: dataset_lib.FederatedDataset):
    """Reads nothing yet."""
    self.source = client_sources.DatasetSource(dataset, schema.TRAIN)
    self.client_ids = self.source.population.client_ids
    self._counts: dict[str, np.ndarray] = {}

  @abc.abstractmethod
  def read_clients(self, round_num: int, client_indices: np.ndarray) -> Seen:
    """Returns what the batches of some clients hold."""

  def prepare(self, round_num: int) -> None:
    """Does nothing: batches are drawn in the round."""
    del round_num

  def run_round(self, round_num: int) -> None:
    """Makes all batches of all clients, a share of the clients on each core."""
    num_cores = len(os.sched_getaffinity(0))
    shares = np.array_split(np.arange(len(self.client_ids)), num_cores)
    with futures.ThreadPoolExecutor(num_cores) as pool:
      seen = list(
        pool.map(lambda share: self.read_clients(round_num, share), shares)
      )
    self._counts = {
      name: np.sum([float(getattr(one, name)) for one in seen])
      for name in ('num_batches', 'num_examples')
    }

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns what was counted in the last pass, in place of weights."""
    return self._counts


@contextlib.contextmanager
def open_contender(
  inputs: workload_lib.Inputs, build: Callable[..., PassContender]
) -> Iterator[PassContender]:
  """Yields a contender on the published dataset of the inputs."""
  path = inputs.folder / workload_lib.DATASET
  with dataset_lib.FederatedDataset.open(path) as dataset:
    yield build(inputs, dataset)
