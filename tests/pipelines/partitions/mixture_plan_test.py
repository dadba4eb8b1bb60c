import numpy as np
import pytest
import scipy.stats

from pipelines import options
from pipelines.examples import splits
from pipelines.partitions import plan as partition_plan
from pipelines.steps import planning
from tests.testing import surveys
from tff_algos.core import config as config_lib
from tff_algos.core import errors


def test_clients_get_what_their_mixture_says():
  plan = surveys.make_plan(
    surveys.survey(600), sizes={'law': 'uniform', 'minimum': 10, 'maximum': 10}
  )
  minority = surveys.count(plan, 0, 0)
  np.testing.assert_array_equal(minority, [1, 1, 1, 9, 9, 9, 1, 9])
  np.testing.assert_array_equal(surveys.count(plan, 1, 0), 10 - minority)
  for split in (1, 2):  # 0.2 * 10 examples; 1.8 and 0.2 round to 2 and 0
    both = surveys.count(plan, 0, split) + surveys.count(plan, 1, split)
    np.testing.assert_array_equal(both, np.full(8, 2))


def test_nobody_gets_what_is_held_out():
  plan = surveys.make_plan(surveys.survey(600))
  held_out = plan.roles == splits.HELD_OUT
  assert held_out.any()
  assert np.all(plan.owners[:, held_out] == planning.NOBODY)


def test_ids_and_groups():
  plan = surveys.make_plan(surveys.survey(600))
  assert plan.client_ids[:2] == ('client_00000', 'client_00001')
  assert plan.client_ids[-2:] == ('unseen_00000', 'unseen_00001')
  assert plan.groups == ('participating',) * 6 + ('unseen',) * 2
  assert list(plan.client_ids) == sorted(plan.client_ids)


def test_more_unseen_clients_change_no_participating_mixture_or_size():
  partition = {'law': 'random', 'num_clients': 6}
  few = surveys.make_plan(surveys.survey(600), partition=partition)
  many = surveys.make_plan(
    surveys.survey(600), partition=partition | {'num_unseen_clients': 3}
  )
  np.testing.assert_array_equal(few.mixtures, many.mixtures[:6])
  for source in (0, 1):
    np.testing.assert_array_equal(
      surveys.count(few, source, 0), surveys.count(many, source, 0)[:6]
    )


def test_native_examples_stay_in_their_distribution():
  native = np.arange(600) % 2
  plan = surveys.make_plan(
    surveys.survey(600, native=native), distributions={'kind': 'native'}
  )
  for source in (0, 1):
    assert np.all(plan.owners[source][native != source] == planning.NOBODY)
    assert np.any(plan.owners[source] != planning.NOBODY)


def test_views_show_what_is_native_to_them():
  native = np.arange(600) % 2
  plan = surveys.make_plan(
    surveys.survey(600, native=native),
    names=('a_upright', 'a_rotated', 'b_upright', 'b_rotated'),
    partition={'law': 'iid', 'num_clients': 6},
  )
  for source in range(4):
    dealt = plan.owners[source] != planning.NOBODY
    assert set(native[dealt]) == {source // 2}


def test_equal_sizes_use_the_pools_up():
  plan = surveys.make_plan(
    surveys.survey(600),
    partition={'law': 'iid', 'num_clients': 5},
    sizes={'law': 'equal'},
    splits={},
  )
  pool = int(np.sum(plan.roles == 0))
  sizes = surveys.count(plan, 0, 0) + surveys.count(plan, 1, 0)
  assert len(set(sizes)) == 1
  assert pool * 2 - sizes.sum() <= 2 * 5


def test_partition_that_cannot_be_met():
  with pytest.raises(errors.PartitionError, match='only .* exist. Lower sizes'):
    surveys.make_plan(surveys.survey(60))


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
  plan = partition_plan.make_plan(
    surveys.survey(40_000, native=native),
    config,
    [f'theta_{s}' for s in range(8)],
    num_classes=0,
    has_test_split=False,
  )
  total = sum(surveys.count(plan, s, 0) for s in range(8))
  assert np.all((total >= 100) & (total <= 200))


def test_iid_split_of_one_distribution():
  """Uniform: all images are used, and classes lie as they fall.

  Chi-square of 20 clients by 10 classes, level 0.0001; the seed is fixed.
  """
  survey = surveys.survey(2000)
  plan = surveys.make_plan(
    survey,
    names=('all',),
    distributions={},
    partition={'law': 'iid', 'num_clients': 20},
    sizes={},
    splits={'held_out_fraction': 0.0},
  )
  np.testing.assert_array_equal(surveys.count(plan, 0, 0), np.full(20, 100))
  table = np.zeros((20, 10))
  np.add.at(table, (plan.owners[0], survey.y), 1)
  assert scipy.stats.chi2_contingency(table)[1] > 0.0001
  assert table.std() > 1  # 3 expected: nothing is stratified.
