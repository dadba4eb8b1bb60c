import numpy as np
import pytest

from pipelines.examples import splits
from pipelines.steps import planning
from tests.testing import surveys
from tff_algos.core import errors


@pytest.mark.parametrize(
  'law', sorted(set(surveys.LAWS) - {*surveys.MIXING, 'natural'})
)
def test_planted_label_mixture_is_what_clients_have(law):
  survey = surveys.survey(900)
  plan = surveys.make_law_plan(law, survey, splits={})
  owned = (plan.roles == 0) & (plan.owners[0] >= 0)
  histogram = np.zeros((len(plan.client_ids), 10))
  np.add.at(histogram, (plan.owners[0][owned], survey.y[owned]), 1)
  sizes = histogram.sum(axis=1, keepdims=True)
  planted = plan.planted.label_mixtures
  np.testing.assert_allclose(planted.sum(axis=1), 1)
  if law == 'class_groups':  # Within a group, labels fall as they may.
    assert np.all(histogram[planted == 0] == 0)
    np.testing.assert_array_equal(
      plan.planted.clusters, [0, 0, 1, 1, 2, 2, 0, 1, 2]
    )
  else:
    np.testing.assert_allclose(planted, histogram / sizes)


def test_shards_use_every_image_once():
  """The largest of the paper's settings: 1000 clients, 50 of 200 classes."""
  n = 100_000
  key = np.random.default_rng(0).integers(0, 256, (n, 16), np.uint8)
  survey = planning.Survey(
    key,
    np.zeros(n, bool),
    np.full(n, -1),
    np.full(n, ''),
    np.arange(n, dtype=np.int32) % 200,
    group=np.empty((n, 0), np.uint8),
    time=np.empty(0),
  )
  plan = surveys.make_plan(
    survey,
    names=('all',),
    num_classes=200,
    distributions={},
    partition={
      'law': 'shards',
      'num_clients': 1000,
      'options': {'shards_per_client': 50},
    },
    sizes={},
    splits={'held_out_fraction': 0.0},
  )
  np.testing.assert_array_equal(np.bincount(plan.owners[0]), np.full(1000, 100))
  pairs = np.unique(plan.owners[0].astype(np.int64) * 200 + survey.y)
  assert len(pairs) == 50_000  # Fifty classes for each client.


def _official():
  """Returns a survey whose last sixth is the official test split."""
  return surveys.survey(1200, is_test=np.arange(1200) >= 1000)


_SHARDS = {
  'names': ('all',),
  'has_test_split': True,
  'distributions': {},
  'partition': surveys.LAWS['shards'],
  'sizes': {},
}


def test_dealt_tests_have_the_classes_of_training():
  survey = _official()
  plan = surveys.make_plan(survey, **_SHARDS, splits={'client_test': 'dealt'})
  trains = plan.roles == 0
  assert np.all(plan.owners[0] >= 0)  # Every image once.
  assert np.sum(plan.roles == splits.HELD_OUT) == 200
  for client in range(10):
    mine = plan.owners[0] == client
    train, test = (
      np.bincount(survey.y[mine & rows], minlength=10)
      for rows in (trains, ~trains)
    )
    assert sorted(train[train > 0]) == [50, 50]
    np.testing.assert_array_equal(test * 5, train)


def test_shared_tests_are_all_of_the_classes():
  survey = _official()
  plan = surveys.make_plan(
    survey, **_SHARDS, splits={'client_test': 'all_of_classes'}
  )
  assert np.all(plan.owners[0][plan.roles == splits.HELD_OUT] == -1)
  classes = plan.planted.label_mixtures > 0
  np.testing.assert_array_equal(plan.shared_test, classes * 20)
  np.testing.assert_array_equal(classes.sum(axis=1), np.full(10, 2))


def test_tests_that_cannot_be_dealt_or_shared():
  few = surveys.survey(1000, is_test=np.arange(1000) >= 990)
  with pytest.raises(
    errors.PartitionError, match='too few to be dealt: 8 of 10'
  ):
    surveys.make_plan(few, **_SHARDS, splits={'client_test': 'dealt'})
  y = np.arange(1000, dtype=np.int32) % 10
  y[990:] = 3
  with pytest.raises(errors.PartitionError, match='no held-out .* class 0'):
    surveys.make_plan(
      few._replace(y=y), **_SHARDS, splits={'client_test': 'all_of_classes'}
    )


@pytest.mark.parametrize(
  ('test_ratio', 'train_share'), [(1 / 3, 0.75), (0.25, 0.8), (1 / 9, 0.9)]
)
@pytest.mark.parametrize('law', ['class_groups', 'consecutive_classes'])
def test_clients_split_by_themselves(law, test_ratio, train_share):
  """75/25 as in CGPFL, 80/20 as in PPFL, 90/10 as in LEAF: rounded down."""
  splitting = {
    'test_ratio': test_ratio,
    'split_by': 'client',
    'held_out_fraction': 0.0,
    'pool_test_split': True,
  }
  plan = surveys.make_law_plan(
    law, _official(), splits=splitting, has_test_split=True
  )
  assert set(plan.roles) == {0, 2}
  train, test = (surveys.count(plan, 0, split) for split in (0, 2))
  np.testing.assert_array_equal(
    train, np.floor(train_share * (train + test) + 1e-9)
  )
  assert np.sum(train + test) == np.sum(plan.owners[0] >= 0)
  if law == 'class_groups':  # The test split is dealt as well.
    assert np.sum(train + test) == 1200
