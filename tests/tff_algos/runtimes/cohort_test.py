import numpy as np

from tests.testing import running_sum
from tff_algos.core import seeds
from tff_algos.runtimes import cohort


def _cohort(load_states=None) -> cohort.Cohort:
  return cohort.Cohort(
    call=running_sum.phase_call([2, 0, 1], [0.5, 1.5, 2.5]),
    round_num=4,
    base_seed=9,
    source=running_sum.source([1.0], [2.0, 3.0], [4.0, 5.0, 6.0]),
    load_states=load_states,
  )


def test_clients_come_in_the_order_of_the_call():
  three = _cohort()
  assert three.size == 3
  assert three.client_ids == ['c002', 'c000', 'c001']


def test_client_loads_one_unpadded():
  client = _cohort().client(0, uses_client_state=False)
  assert client.client_index == 2 and client.client_index.dtype == np.int32
  assert client.client_input == 0.5
  np.testing.assert_array_equal(client.data.x[:, 0], [4, 5, 6])
  np.testing.assert_array_equal(client.data.mask, [1, 1, 1])
  assert client.client_state == ()


def test_a_client_without_examples_gets_a_row_of_padding():
  empty = _cohort()._replace(source=running_sum.source([], [], [4.0]))
  masks = [
    empty.client(i, uses_client_state=False).data.mask.tolist()
    for i in range(3)
  ]
  assert masks == [[1], [0], [0]]


def test_a_part_is_a_cohort_of_its_own():
  part = _cohort().part(slice(1, 3))
  assert part.size == 2
  assert part.client_ids == ['c000', 'c001']
  np.testing.assert_array_equal(part.num_examples, [1, 2])
  some = part.describe(slice(0, 2), uses_client_state=False)
  whole = _cohort().describe(slice(0, 3), uses_client_state=False)
  np.testing.assert_array_equal(some.client_index, whole.client_index[1:])
  np.testing.assert_array_equal(some.client_input, whole.client_input[1:])
  np.testing.assert_array_equal(some.seed, whole.seed[1:])
  assert _cohort().part(slice(3, 3)).size == 0
  apart = _cohort().part(np.array([2, 0]))
  assert apart.client_ids == ['c001', 'c002']
  seed = apart.describe(slice(0, 2), uses_client_state=False).seed
  np.testing.assert_array_equal(seed, whole.seed[[2, 0]])


def test_seed_depends_on_client_phase_round_and_run_not_on_the_block():
  whole = _cohort().describe(slice(0, 3), uses_client_state=False)
  last = _cohort().client(2, uses_client_state=False)
  expected = [
    seeds.derive_seed(9, running_sum.PHASE, 4, client_id)
    for client_id in ('c002', 'c000', 'c001')
  ]
  np.testing.assert_array_equal(whole.seed, expected)
  np.testing.assert_array_equal(last.seed, expected[2])


def test_states_are_loaded_only_where_used():
  asked = []

  def load_states(indices):
    asked.append(list(indices))
    return np.asarray(indices) * 10

  unused = _cohort(load_states).client(0, uses_client_state=False)
  assert unused.client_state == () and not asked
  used = _cohort(load_states).describe(slice(1, 3), uses_client_state=True)
  assert asked == [[0, 1]]
  np.testing.assert_array_equal(used.client_state, [0, 10])
  one = _cohort(load_states).client(2, uses_client_state=True)
  assert one.client_state == 10


def test_concatenate_joins_blocks_leaf_by_leaf():
  blocks = [
    {'a': np.array([1]), 'b': (np.zeros([1, 2]),)},
    {'a': np.array([2, 3]), 'b': (np.ones([2, 2]),)},
  ]
  joined = cohort.concatenate(blocks)
  np.testing.assert_array_equal(joined['a'], [1, 2, 3])
  assert joined['b'][0].shape == (3, 2)
  assert cohort.concatenate([(), ()]) == ()
