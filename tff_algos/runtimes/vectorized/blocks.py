"""Block and chunk sizes of a cohort, by cache size and memory budget.

A step reads and writes the weights of every client of a block, so a block whose
weights exceed the cache is bound by memory bandwidth; too small blocks are
bound by the dispatch of operations. A chunk is the input of one call of a
graph: the blocks computed by one core or device.
"""

import math
from typing import NamedTuple

import numpy as np

from tff_algos.core import errors
from tff_algos.core.structures import Structure
from tff_algos.numerics import trees

# Bytes of a block's weights. Twice as many need fewer operations, but take 1.4
# times as long if other processes use the shared cache (benchmarks/README.md).
_CACHE_BYTES = 13 << 18
_MOST = 50
# Copies of the weights that a local step may hold at once: the weights before
# and after, the gradient, the product with the rate, two optimizer slots.
_WEIGHT_COPIES = 6
# Bytes carried into a graph by a chunk, unless a budget allows less.
_CHUNK_BYTES = 64 << 20


class Costs(NamedTuple):
  """Memory of one client.

  Attributes:
    weight_bytes: Weights that it trains, of one model or of several.
    working_bytes: Memory while it is computed.
    carried_bytes: Memory from loading its chunk to the end of the chunk:
      examples that are not resident, old and new state.
  """

  weight_bytes: int
  working_bytes: int
  carried_bytes: int


class Sizes(NamedTuple):
  """Division of a cohort into blocks and chunks.

  Attributes:
    clients_per_block: Clients computed at a time by a core or device, >= 1.
    num_chunks: Number of chunks of the cohort, one a call of a graph, >= 1.
  """

  clients_per_block: int
  num_chunks: int


def working_bytes(weight_bytes: int, data: Structure, capacity: int) -> int:
  """Returns an estimate of a client's memory while it is computed.

  Args:
    weight_bytes: Bytes of the trained weights, of one model or of several.
    data: Types of a client's examples, with an unknown capacity.
    capacity: Rows that the examples are padded to.
  """
  return capacity * trees.num_bytes(data) + _WEIGHT_COPIES * weight_bytes


def trained_bytes(weights: Structure, result: Structure) -> int:
  """Returns the bytes of the weights that a client trains.

  Args:
    weights: Types of one model's weights.
    result: Types of a client's result; one that trains several models uploads
      all of them.
  """
  return max(trees.num_bytes(weights), trees.num_bytes(result))


def size_of_cache(weight_bytes: int, fewest_clients: int = 1) -> int:
  """Returns the number of clients of a block whose weights fit the cache.

  Args:
    weight_bytes: Bytes of a client's trained weights.
    fewest_clients: Smallest size.
  """
  fitting = _CACHE_BYTES // max(weight_bytes, 1)
  return min(max(fitting, fewest_clients), _MOST)


def choose(
  *,
  cohort_size: int,
  costs: Costs,
  num_parallel: int,
  clients_per_block: int,
  fewest_clients: int,
  budget_bytes: int,
) -> Sizes:
  """Chooses block and chunk sizes of a cohort.

  Args:
    cohort_size: Clients of the phase call, >= 1.
    costs: Memory of the largest client.
    num_parallel: Chunks that are computed at the same time; one more is loaded.
    clients_per_block: Largest block size; 0 chooses it.
    fewest_clients: Smallest chosen block size, unless the budget needs less.
    budget_bytes: Memory limit of all of this; 0 for no limit.

  Raises:
    ConfigError: If the budget does not hold one client a core or device.
  """
  num_parallel = min(num_parallel, cohort_size)
  block = clients_per_block or size_of_cache(costs.weight_bytes, fewest_clients)
  chunk = max(_CHUNK_BYTES // max(costs.carried_bytes, 1), block)
  if budget_bytes:
    working = num_parallel * costs.working_bytes
    carried = (num_parallel + 1) * costs.carried_bytes
    if working + carried > budget_bytes:
      raise errors.ConfigError(
        'config.runtime.vectorized.memory_budget_mib leaves '
        f'{max(budget_bytes, 0) / (1 << 20):.1f} MiB, but one client takes '
        f'{costs.working_bytes / (1 << 20):.1f} MiB on each of {num_parallel} '
        'cores or devices, and its examples and state '
        f'{costs.carried_bytes / (1 << 20):.1f} MiB, {num_parallel + 1} times: '
        f'add at least {math.ceil((working + carried - budget_bytes) / 2**20)}'
        ', or lower num_parallel_blocks'
      )
    affordable = max(budget_bytes // 2 // max(working, 1), 1)
    if affordable < block:
      block = _few_sizes(affordable)
    left = budget_bytes - block * working
    if left < carried:
      block, left = 1, budget_bytes - working
    if carried:
      chunk = min(chunk, left // carried)
    if chunk < block:
      block = _few_sizes(chunk)
  # No core should be idle while another has two chunks left.
  rounds = -(-cohort_size // (chunk * num_parallel))
  num_chunks = min(rounds * num_parallel, cohort_size)
  return Sizes(int(block), int(num_chunks))


def needed_bytes(
  cohort_size: int, costs: Costs, num_parallel: int, sizes: Sizes
) -> int:
  """Returns an estimate of the memory of a cohort's computation.

  Args:
    cohort_size: Clients of the phase call, >= 1.
    costs: Memory of the largest client.
    num_parallel: Chunks that are computed at the same time; one more is loaded.
    sizes: Block and chunk sizes.
  """
  num_parallel = min(num_parallel, cohort_size)
  working = num_parallel * sizes.clients_per_block * costs.working_bytes
  chunk = -(-cohort_size // sizes.num_chunks)
  return working + (num_parallel + 1) * chunk * costs.carried_bytes


def _few_sizes(most: int) -> int:
  """Returns the power of two at or below: each size of block is traced anew."""
  return 1 << int(most).bit_length() - 1


def deal(
  clients: np.ndarray, sizes: Sizes, num_parallel: int
) -> list[np.ndarray]:
  """Divides clients into chunks of whole blocks, and chunks of the remainder.

  Args:
    clients: Sorted by their numbers of examples, so that clients of a block are
      nearly equal and all chunks take equally long.
    sizes: Block and chunk sizes.
    num_parallel: Chunks that are computed at the same time.

  Returns:
    Chunks of as many blocks each, then some of at most one block each, as few
    as can be shared equally.
  """
  block, num_chunks = sizes
  num_blocks = len(clients) // (block * num_chunks) * num_chunks
  whole = clients[: num_blocks * block].reshape(num_blocks, block)
  chunks = [whole[i::num_chunks].ravel() for i in range(num_chunks)]
  left = clients[num_blocks * block :]
  parts = -(-len(left) // (block * num_parallel)) * num_parallel
  parts = min(parts, len(left))
  chunks += [left[i::parts] for i in range(parts)]
  return [chunk for chunk in chunks if len(chunk)]
