"""The size of a block and a chunk: cache, cores, and an honest budget."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tff_algos.core import errors
from tff_algos.runtimes.vectorized import blocks

_MIB = 1 << 20
_MLP = 4 * 159_010


def _choose(costs=(_MLP, _MIB, 0), **changes):
  arguments = {
    'cohort_size': 1000,
    'num_parallel': 2,
    'clients_per_block': 0,
    'fewest_clients': 1,
    'budget_bytes': 0,
    **changes,
  }
  return blocks.choose(costs=blocks.Costs(*costs), **arguments)


def test_weights_of_a_block_fit_the_cache():
  assert _choose() == (5, 2)


def test_blocks_are_neither_tiny_nor_huge():
  assert _choose((4, 1, 0)).clients_per_block == 50
  assert _choose((1 << 30, 1, 0)).clients_per_block == 1
  assert _choose((1 << 30, 1, 0), fewest_clients=4).clients_per_block == 4


def test_the_size_of_a_block_does_not_depend_on_the_cohort():
  assert _choose(cohort_size=7) == (5, 2)
  assert _choose(cohort_size=4, num_parallel=3) == (5, 3)
  assert _choose(cohort_size=1) == (5, 1)


def test_what_is_wanted_is_taken():
  assert _choose(clients_per_block=7).clients_per_block == 7
  assert _choose(clients_per_block=2000).clients_per_block == 2000


def test_a_budget_asks_for_few_different_sizes():
  """Each size of block is traced anew."""
  sizes = {
    _choose((4, _MIB, 0), budget_bytes=budget * _MIB).clients_per_block
    for budget in range(4, 300)
  }
  assert sizes == {1, 2, 4, 8, 16, 32, 50}


def _deal(num_clients, block, num_chunks, num_parallel):
  chunks = blocks.deal(
    np.arange(num_clients), blocks.Sizes(block, num_chunks), num_parallel
  )
  return [chunk.tolist() for chunk in chunks]


def test_whole_blocks_are_dealt_first_then_the_rest():
  assert _deal(11, 2, 2, 2) == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 10], [9]]
  assert _deal(8, 2, 2, 2) == [[0, 1, 4, 5], [2, 3, 6, 7]]
  assert _deal(3, 10, 2, 2) == [[0, 2], [1]]
  assert _deal(1, 10, 1, 2) == [[0]]


@given(
  st.integers(1, 300), st.integers(1, 60), st.integers(1, 9), st.integers(1, 4)
)
def test_everyone_is_dealt_once_and_cores_get_equally_much(
  num_clients, block, num_chunks, num_parallel
):
  num_chunks = min(num_chunks * num_parallel, num_clients)
  chunks = _deal(num_clients, block, num_chunks, num_parallel)
  assert sorted(sum(chunks, [])) == list(range(num_clients))
  of_blocks = num_chunks if num_clients >= block * num_chunks else 0
  whole = [len(chunk) for chunk in chunks[:of_blocks]]
  assert len(set(whole)) <= 1
  assert all(size % block == 0 for size in whole)
  rest = [len(chunk) for chunk in chunks[of_blocks:]]
  assert all(size <= block for size in rest)
  if rest:
    assert max(rest) - min(rest) <= 1
    assert len(rest) % num_parallel == 0 or max(rest) == 1


def test_chunks_carry_little_at_a_time():
  # 64 clients each; 16 chunks would do, and every core gets as many.
  assert _choose((_MLP, _MIB, _MIB)).num_chunks == 16
  assert _choose((_MLP, _MIB, _MIB), num_parallel=3).num_chunks == 18
  # But never less than a block.
  assert _choose((4, 1, 1 << 30)) == (50, 20)


@given(
  st.integers(1, 50),
  st.integers(1, 8),
  st.integers(0, 40),
  st.integers(1, 1000),
  st.integers(0, 1000),
  st.integers(1, 100_000),
)
def test_budget_is_kept_or_refused(
  cohort_size, num_parallel, wanted, working, carried, budget
):
  """Blocks that run, chunks that run, and the one that is read."""
  running = min(num_parallel, cohort_size)

  def needed(sizes):
    dealt = blocks.deal(np.arange(cohort_size), sizes, running)
    return (
      running * sizes.clients_per_block * working
      + (running + 1) * max(map(len, dealt)) * carried
    )

  try:
    sizes = _choose(
      (1, working, carried),
      cohort_size=cohort_size,
      num_parallel=num_parallel,
      clients_per_block=wanted,
      budget_bytes=budget,
    )
  except errors.ConfigError:
    assert needed(blocks.Sizes(1, cohort_size)) > budget
  else:
    assert needed(sizes) <= budget
    assert 1 <= sizes.clients_per_block
    assert 1 <= sizes.num_chunks <= cohort_size


def test_examples_that_outweigh_the_model_make_blocks_smaller():
  """Of 30 MiB two cores and the next chunk hold 9 clients of a MiB each."""
  costs, budget = blocks.Costs(4, 1000, _MIB), 30 * _MIB
  sizes = _choose(costs, budget_bytes=budget)
  assert sizes.clients_per_block == 8
  dealt = blocks.deal(np.arange(1000), sizes, 2)
  assert max(map(len, dealt)) == 8
  expected = 2 * 8 * 1000 + 3 * 9 * _MIB
  assert blocks.needed_bytes(1000, costs, 2, sizes) == expected < budget


def test_budget_below_one_client_says_what_is_missing():
  with pytest.raises(
    errors.ConfigError, match=r'leaves 2.0 MiB, .* add at least 3, or lower'
  ):
    _choose((4, _MIB, _MIB), budget_bytes=2 * _MIB)


def test_bytes_of_a_client():
  data = (
    tf.TensorSpec([None, 4], tf.float32),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None], tf.float32),
  )
  assert blocks.working_bytes(24, data, capacity=10) == 10 * 24 + 6 * 24
