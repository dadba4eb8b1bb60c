import numpy as np

from tff_algos.runtimes.pjrt import held_states

_TYPES = [('float32', [2]), ('int32', [])]


class _Holder:
  """A device in memory; notes what it is asked for."""

  def __init__(self):
    self.is_open = True
    self.stacks = {}
    self.forgotten = []
    self.asked = []

  def stack(self, types, size, pieces, arrays):
    made = held_states.Stack(self, f's{len(self.stacks)}', size, types)
    leaves = [np.zeros((size, *shape), dtype) for dtype, shape in types]
    for name, rows, places in pieces:
      for leaf, source in zip(
        leaves, self.stacks.get(name, arrays), strict=True
      ):
        leaf[places] = source[rows]
    self.stacks[made.name] = leaves
    self.asked.append((pieces, len(arrays)))
    return made

  def fetch(self, name):
    self.asked.append(name)
    return self.stacks[name]

  def forget(self, name):
    self.forgotten.append(name)


def _rows(*values):
  """Returns the leaves of stacked states that are told apart by a number."""
  numbers = np.array(values, np.int32)
  return [np.stack([numbers, -numbers], 1).astype(np.float32), numbers]


def _held(holder, *values):
  rows = [(_rows(*values), i) for i in range(len(values))]
  return held_states.gather(holder, _TYPES, rows, len(values))


def test_a_leaf_is_an_array_that_is_fetched_once():
  holder = _Holder()
  pairs, numbers = _held(holder, 3, 4, 5).leaves(2)
  holder.asked.clear()
  assert (pairs.shape, pairs.dtype, len(numbers)) == ((2, 2), np.float32, 2)
  np.testing.assert_array_equal(pairs, [[3, -3], [4, -4]])
  np.testing.assert_array_equal(numbers, [3, 4])
  assert numbers[1] == 4
  assert np.array(numbers, copy=True).flags.writeable
  assert holder.asked == ['s0']


def test_rows_of_stacks_and_arrays_are_joined_without_fetching():
  holder = _Holder()
  first, second = _held(holder, 1, 2).leaves(2), _held(holder, 3, 4).leaves(2)
  other = _held(_Holder(), 8).leaves(1)
  holder.asked.clear()
  joined = first[0].join(
    [(second, 1), (_rows(6, 7), 1), (first, 0), (other, 0), (second, 0)]
  )
  pieces = [('s1', [1, 0], [0, 4]), ('', [0, 1], [1, 3]), ('s0', [0], [2])]
  assert holder.asked == [(pieces, 2)]
  np.testing.assert_array_equal(joined[1], [4, 7, 1, 8, 3])


def test_a_stack_is_forgotten_with_its_last_leaf():
  holder = _Holder()
  leaves = _held(holder, 1, 2).leaves(2)
  del leaves[0]
  assert not holder.forgotten
  del leaves
  assert holder.forgotten == ['s0']
  leaf = _held(holder, 1).leaves(1)[1]
  assert leaf.is_held
  holder.is_open = False
  assert not leaf.is_held
