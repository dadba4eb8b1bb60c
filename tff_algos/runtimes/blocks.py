"""How many clients are stacked at a time: the cache, and the memory budget.

A step reads and writes the weights of every client of a block, so a block
whose weights outgrow the cache waits for memory; blocks that are too small
pay for starting operations. Several blocks run at the same time, one a core:
operations on a block are too small to be worth sharing between cores.
"""

import math
from typing import Any

import tensorflow as tf

from tff_algos.core import errors

Structure = Any

# Weights of a block that still fit the caches of a core.
_CACHE_BYTES = 8 << 20
_FEWEST, _MOST = 8, 100
# Copies of the weights that a local step may hold at once: the weights before
# and after, the gradient, the product with the rate, two optimizer slots.
_WEIGHT_COPIES = 6


def client_bytes(
  weights: Structure, data: Structure, client_state: Structure, capacity: int
) -> int:
  """Returns an estimate of the memory that one client of a block takes.

  Args:
    weights: Types of one model's weights.
    data: Types of a client's examples, with an unknown capacity.
    client_state: Types of a client's state.
    capacity: Rows that the examples are padded to.
  """
  rows = sum(
    math.prod(leaf.shape[1:]) * leaf.dtype.size
    for leaf in tf.nest.flatten(data)
  )
  # The examples as they came, and once more in the order of the batches.
  examples = 2 * capacity * rows
  return (
    examples + _WEIGHT_COPIES * num_bytes(weights) + 2 * num_bytes(client_state)
  )


def num_bytes(spec: Structure) -> int:
  """Returns the bytes of a structure of `tf.TensorSpec`s of known shapes."""
  return sum(
    math.prod(leaf.shape) * leaf.dtype.size for leaf in tf.nest.flatten(spec)
  )


def clients_per_block(
  *,
  cohort_size: int,
  weight_bytes: int,
  bytes_per_client: int,
  num_parallel: int,
  budget_bytes: int,
) -> int:
  """Returns how many clients to stack.

  Args:
    cohort_size: Clients of the phase call, >= 1.
    weight_bytes: Of one client's model.
    bytes_per_client: See `client_bytes`.
    num_parallel: Blocks that run at the same time; one more is loaded.
    budget_bytes: Most memory for the blocks together; 0 for no limit.

  Raises:
    ConfigError: If the budget does not hold one client a block.
  """
  chosen = min(max(_CACHE_BYTES // max(weight_bytes, 1), _FEWEST), _MOST)
  # No core should be idle while another has two blocks to go.
  chosen = min(chosen, -(-cohort_size // num_parallel))
  if budget_bytes:
    most = budget_bytes // (bytes_per_client * (num_parallel + 1))
    if most < 1:
      needed = bytes_per_client * (num_parallel + 1) / (1 << 20)
      raise errors.ConfigError(
        'config.runtime.vectorized.memory_budget_mib is '
        f'{budget_bytes >> 20}, but one client takes about '
        f'{bytes_per_client / (1 << 20):.1f} MiB and {num_parallel + 1} blocks '
        f'are held at a time: give at least {math.ceil(needed)}, or lower '
        'num_parallel_blocks'
      )
    chosen = min(chosen, most)
  return int(max(chosen, 1))
