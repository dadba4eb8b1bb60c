import numpy as np
import pytest

from pipelines import hashing, options, planning, splits
from tests.testing import raw_data
from tff_algos.core import config as config_lib
from tff_algos.core import errors

_NAMES = ('upright', 'rotated')


def _survey(n, *, native=None, client='', is_test=None):
  keys = [np.frombuffer(hashing.text_key(str(i)), np.uint8) for i in range(n)]
  return planning.Survey(
    key=np.stack(keys),
    is_test=np.zeros(n, bool) if is_test is None else is_test,
    native_source=np.full(n, -1) if native is None else native,
    client=np.broadcast_to(np.array(client), (n,)),
  )


def _plan(survey, *, names=_NAMES, has_test_split=False, **overrides):
  return planning.make_plan(
    survey,
    raw_data.digits_config(**overrides),
    names,
    has_test_split=has_test_split,
  )


def _count(plan, source, split):
  """Returns how many examples of a kind each client got."""
  owners = plan.owners[source][plan.roles == split]
  return np.bincount(
    owners[owners != planning.NOBODY], minlength=len(plan.client_ids)
  )


def test_clients_get_what_their_mixture_says():
  plan = _plan(
    _survey(600), sizes={'law': 'uniform', 'minimum': 10, 'maximum': 10}
  )
  minority = _count(plan, 0, 0)
  np.testing.assert_array_equal(minority, [1, 1, 1, 9, 9, 9, 1, 9])
  np.testing.assert_array_equal(_count(plan, 1, 0), 10 - minority)
  for split in (1, 2):  # 0.2 * 10 examples; 1.8 and 0.2 round to 2 and 0
    both = _count(plan, 0, split) + _count(plan, 1, split)
    np.testing.assert_array_equal(both, np.full(8, 2))


def test_nobody_gets_what_is_held_out():
  plan = _plan(_survey(600))
  held_out = plan.roles == splits.HELD_OUT
  assert held_out.any()
  assert np.all(plan.owners[:, held_out] == planning.NOBODY)


def test_ids_and_groups():
  plan = _plan(_survey(600))
  assert plan.client_ids[:2] == ('client_00000', 'client_00001')
  assert plan.client_ids[-2:] == ('unseen_00000', 'unseen_00001')
  assert plan.groups == ('participating',) * 6 + ('unseen',) * 2
  assert list(plan.client_ids) == sorted(plan.client_ids)


def test_more_unseen_clients_change_no_participating_mixture_or_size():
  partition = {'law': 'random', 'num_clients': 6}
  few = _plan(_survey(600), partition=partition)
  many = _plan(_survey(600), partition=partition | {'num_unseen_clients': 3})
  np.testing.assert_array_equal(few.mixtures, many.mixtures[:6])
  for source in (0, 1):
    np.testing.assert_array_equal(
      _count(few, source, 0), _count(many, source, 0)[:6]
    )


def test_plan_follows_examples_not_their_order():
  survey = _survey(600)
  back = planning.Survey(*(column[::-1] for column in survey))
  plan, reverse = _plan(survey), _plan(back)
  np.testing.assert_array_equal(plan.owners, reverse.owners[:, ::-1])


def test_other_seeds_draw_other_examples():
  survey = _survey(600)
  assert np.any(_plan(survey).owners != _plan(survey, seed=4).owners)


def test_native_examples_stay_in_their_distribution():
  native = np.arange(600) % 2
  plan = _plan(_survey(600, native=native))
  for source in (0, 1):
    assert np.all(plan.owners[source][native != source] == planning.NOBODY)


def test_equal_sizes_use_the_pools_up():
  plan = _plan(
    _survey(600),
    partition={'law': 'iid', 'num_clients': 5},
    sizes={'law': 'equal'},
    splits={},
  )
  pool = int(np.sum(plan.roles == 0))
  sizes = _count(plan, 0, 0) + _count(plan, 1, 0)
  assert len(set(sizes)) == 1
  assert pool * 2 - sizes.sum() <= 2 * 5


def test_partition_that_cannot_be_met():
  with pytest.raises(errors.PartitionError, match='only .* exist. Lower sizes'):
    _plan(_survey(60))


def test_more_shards_than_clients():
  with pytest.raises(errors.ConfigError, match='num_shards is 9 .* 8 clients'):
    _plan(_survey(600), num_shards=9)


def _natural(survey, *, names=('all',), num_unseen_clients=0, **overrides):
  return _plan(
    survey,
    names=names,
    partition={'law': 'natural', 'num_unseen_clients': num_unseen_clients},
    sizes={'law': 'equal'},
    **overrides,
  )


def test_natural_partition():
  client = np.array(['bob', 'ann', 'cid'])[np.arange(90) % 3]
  plan = _natural(_survey(90, client=client), num_unseen_clients=1)
  assert sorted(plan.client_ids) == ['ann', 'bob', 'cid']
  assert plan.client_ids[0] < plan.client_ids[1]
  assert plan.groups == ('participating', 'participating', 'unseen')
  assert plan.mixtures is None
  dealt = plan.owners[0] != planning.NOBODY
  np.testing.assert_array_equal(dealt, plan.roles != splits.HELD_OUT)
  owner = np.array(plan.client_ids)[plan.owners[0][dealt]]
  np.testing.assert_array_equal(owner, client[dealt])


def test_natural_partition_needs_a_client_for_each():
  client = np.where(np.arange(90) == 5, '', 'ann')
  with pytest.raises(errors.DataError, match='1 examples have none'):
    _natural(_survey(90, client=client))


def test_natural_partition_keeps_a_client_to_train():
  with pytest.raises(errors.PartitionError, match='at least one'):
    _natural(_survey(90, client='ann'), num_unseen_clients=1)


def test_natural_partition_takes_one_distribution():
  with pytest.raises(errors.ConfigError, match='one source distribution'):
    _natural(_survey(90, client='ann'), names=_NAMES)


@pytest.mark.parametrize('num_clients', [1, 2, 7, 24, 100])
@pytest.mark.parametrize('num_shards', [1, 2, 5, 7])
def test_shards_hold_all_clients_once(num_clients, num_shards):
  members = [
    client
    for shard in range(num_shards)
    for client in planning.clients_of(shard, num_clients, num_shards)
  ]
  assert members == list(range(num_clients))
  for shard in range(num_shards):
    clients = np.array(planning.clients_of(shard, num_clients, num_shards), int)
    found = planning.shard_of(clients, num_clients, num_shards)
    assert np.all(found == shard)


def test_config_of_the_paper_can_be_written():
  config = config_lib.from_dict(
    options.DatasetConfig,
    {
      'source': {'name': 'linear_regression', 'options': {'num_sources': 8}},
      'distributions': {'kind': 'native'},
      'partition': {'law': 'random', 'num_clients': 100},
      'sizes': {'law': 'uniform', 'minimum': 100, 'maximum': 200},
    },
  )
  native = np.arange(40_000) % 8
  plan = planning.make_plan(
    _survey(40_000, native=native),
    config,
    [f'theta_{s}' for s in range(8)],
    has_test_split=False,
  )
  total = sum(_count(plan, s, 0) for s in range(8))
  assert np.all((total >= 100) & (total <= 200))
