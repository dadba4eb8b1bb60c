import numpy as np
import pytest

from pipelines.examples import splits
from pipelines.steps import planning
from tests.testing import surveys
from tff_algos.core import errors


def _natural(
  survey, *, names=('all',), num_unseen_clients=0, options=None, **overrides
):
  return surveys.make_plan(
    survey,
    names=names,
    partition={
      'law': 'natural',
      'num_unseen_clients': num_unseen_clients,
      'options': options or {},
    },
    sizes={'law': 'equal'},
    **{'distributions': {}} | overrides,
  )


def test_natural_partition():
  client = np.array(['bob', 'ann', 'cid'])[np.arange(90) % 3]
  plan = _natural(surveys.survey(90, client=client), num_unseen_clients=1)
  assert sorted(plan.client_ids) == ['ann', 'bob', 'cid']
  assert plan.client_ids[0] < plan.client_ids[1]
  assert plan.groups == ('participating', 'participating', 'unseen')
  assert plan.mixtures is None
  dealt = plan.owners[0] != planning.NOBODY
  np.testing.assert_array_equal(dealt, plan.roles != splits.HELD_OUT)
  owner = np.array(plan.client_ids)[plan.owners[0][dealt]]
  np.testing.assert_array_equal(owner, client[dealt])


def test_a_client_that_is_written_as_two_numbers_is_refused():
  client = np.array(['7', 'ann', '7.0'])[np.arange(90) % 3]
  with pytest.raises(
    errors.PartitionError, match="the clients '7' and '7.0', whi"
  ):
    _natural(surveys.survey(90, client=client))
  for other in ('8.0', 'ann.0'):
    _natural(surveys.survey(90, client=np.char.replace(client, '7.0', other)))


def test_clients_of_one_time_each_have_nothing_to_train_on():
  client = np.array(['bob', 'ann', 'cid'])[np.arange(90) % 3]
  survey = surveys.survey(90, client=client)
  survey = survey._replace(time=np.zeros(90))
  text = "no participating client .*split_by='client_time', .*of one time"
  with pytest.raises(errors.PartitionError, match=text):
    _natural(survey, splits={'split_by': 'client_time', 'test_ratio': 0.5})


def test_clients_of_one_example_each_have_nothing_to_train_on():
  client = np.char.add('client ', np.arange(90).astype(str))
  survey = surveys.survey(90, client=client)
  ratios = {'split_by': 'client', 'test_ratio': 0.25, 'held_out_fraction': 0.0}
  with pytest.raises(errors.PartitionError, match='are rounded down'):
    _natural(survey, splits=ratios)
  # As is meant.
  _natural(survey, splits={**ratios, 'held_out_fraction': 1.0})


def test_natural_partition_of_native_distributions():
  """The mixture of a client is what it has; without any, equal shares."""
  survey = surveys.survey(90, native=np.arange(90) % 3 // 2)
  survey = survey._replace(
    client=np.array(['ann', 'bob', 'bob'])[np.arange(90) % 3]
  )
  plan, nothing = (
    _natural(
      survey,
      names=('a', 'b'),
      distributions={'kind': 'native'},
      splits={'held_out_fraction': fraction},
    )
    for fraction in (0.0, 1.0)
  )
  np.testing.assert_array_equal(plan.mixtures, [[1, 0], [0.5, 0.5]])
  for source in (0, 1):
    dealt = plan.owners[source] != planning.NOBODY
    np.testing.assert_array_equal(dealt, survey.native_source == source)
  np.testing.assert_array_equal(nothing.mixtures, np.full((2, 2), 0.5))


def test_natural_partition_keeps_a_client_to_train():
  with pytest.raises(errors.PartitionError, match='at least one'):
    _natural(surveys.survey(90, client='ann'), num_unseen_clients=1)


def test_clients_that_come_and_go_stay_in_their_group():
  """None that has trained becomes unseen, whoever else is there."""

  def group_of(clients):
    plan = _natural(
      surveys.survey(
        4 * len(clients), client=np.array([f'c{i}' for i in clients] * 4)
      ),
      options={'unseen_fraction': 0.25},
    )
    return dict(zip(plan.client_ids, plan.groups, strict=True))

  first, second = group_of(range(60)), group_of(range(30, 90))
  num_unseen = sum(group == 'unseen' for group in first.values())
  assert 8 <= num_unseen <= 22
  assert first.keys() & second.keys() == {f'c{i}' for i in range(30, 60)}
  assert {**first, **second} == {**second, **first} == group_of(range(90))


def test_fraction_that_leaves_none_to_train():
  with pytest.raises(errors.PartitionError, match='all 1 clients.*Lower it'):
    _natural(
      surveys.survey(90, client='ann'), options={'unseen_fraction': 0.999}
    )


def test_writers_with_100_training_and_25_test_examples():
  """PPFL's rule on federated EMNIST: the test split is each writer's own."""
  num_train, num_test = [100, 99, 150, 130], [25, 40, 24, 30]
  sizes = [*num_train, *num_test]
  client = np.repeat(['a', 'b', 'c', 'd'] * 2, sizes)
  survey = surveys.survey(
    len(client),
    client=client,
    is_test=np.arange(len(client)) >= sum(num_train),
  )
  plan = _natural(
    survey,
    options={'min_train_examples': 100, 'min_test_examples': 25},
    has_test_split=True,
    splits={'client_test': 'dealt'},
  )
  assert plan.client_ids == ('a', 'd')
  np.testing.assert_array_equal(surveys.count(plan, 0, 0), [100, 130])
  np.testing.assert_array_equal(
    surveys.count(plan, 0, splits.HELD_OUT), [25, 30]
  )
  assert plan.planted.facts == {
    'num_clients_left_out': 2,
    'num_examples_left_out': 99 + 150 + 40 + 24,
  }


def test_accounts_with_30_examples_split_by_themselves():
  """LEAF's recipe as in CMFL: 30 examples at least, 80 % of each train."""
  client = np.repeat(['a', 'b', 'c'], [29, 30, 44])
  plan = _natural(
    surveys.survey(len(client), client=client),
    options={'min_examples': 30},
    splits={'test_ratio': 0.25, 'held_out_fraction': 0, 'split_by': 'client'},
    num_shards=1,
  )
  assert plan.client_ids == ('b', 'c')
  np.testing.assert_array_equal(surveys.count(plan, 0, 0), [24, 35])
  np.testing.assert_array_equal(surveys.count(plan, 0, 2), [6, 9])


def test_some_of_the_natural_clients():
  plan = surveys.make_plan(
    surveys.survey(90, client=np.array(list('abcdefghi'))[np.arange(90) % 9]),
    names=('all',),
    distributions={},
    partition={'law': 'natural', 'num_clients': 4, 'num_unseen_clients': 2},
    sizes={},
  )
  assert plan.groups == ('participating',) * 4 + ('unseen',) * 2
  assert plan.planted.facts['num_clients_left_out'] == 3


@pytest.mark.parametrize('split_by', ['time', 'client_time'])
def test_all_clients_may_be_there_to_be_scored(split_by):
  plan = _natural(
    surveys.survey(
      4,
      client=np.array(['ann', 'ann', 'eve', 'eve']),
      y=np.full(4, -1, np.int32),
      time=np.arange(4.0),
    ),
    splits={'split_by': split_by, 'held_out_fraction': 0.0},
    keep_unlabelled=True,
    num_shards=1,
  )
  assert plan.groups == ('unlabelled',) * 2
  np.testing.assert_array_equal(surveys.count(plan, 0, 2), [2, 2])


@pytest.mark.parametrize('split_by', ['time', 'client_time'])
def test_clients_to_be_scored_take_no_share_of_splits_by_time(split_by):
  """Nor do the newest examples of others, which have no label yet."""
  y = np.array([1] * 10 + [-1] * 8, np.int32)
  plan = _natural(
    surveys.survey(
      18,
      client=np.array(['ann'] * 13 + ['eve'] * 5),
      y=y,
      time=np.arange(18.0),
    ),
    splits={
      'split_by': split_by,
      'test_ratio': 1.0,
      'held_out_fraction': 0.2,
    },
    keep_unlabelled=True,
    num_shards=1,
  )
  assert plan.groups == ('participating', 'unlabelled')
  held_out = splits.HELD_OUT
  expected = [0] * 4 + [2] * 4 + [held_out] * 2 + [splits.NO_LABEL] * 3
  np.testing.assert_array_equal(plan.roles, [*expected, *[2] * 5])
  np.testing.assert_array_equal(surveys.count(plan, 0, 0), [4, 0])
  np.testing.assert_array_equal(surveys.count(plan, 0, 2), [4, 5])
