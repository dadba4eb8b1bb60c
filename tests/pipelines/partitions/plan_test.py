import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from pipelines import options
from pipelines.examples import splits
from pipelines.partitions import plan as partition_plan
from pipelines.steps import planning
from tests.testing import surveys
from tff_algos.core import config as config_lib
from tff_algos.core import errors


def _clients(n):
  return np.array(['ann', 'bob', 'cid', 'dan'])[np.arange(n) % 4]


@hypothesis.settings(max_examples=8)
@hypothesis.given(
  order_seed=strategies.integers(0, 1000),
  seed=strategies.integers(0, 1000),
  split_by=strategies.sampled_from(options.PER_CLIENT + options.FOR_ALL),
)
@pytest.mark.parametrize('law', sorted(surveys.LAWS))
def test_plan_follows_examples_not_their_order(law, order_seed, seed, split_by):
  survey = surveys.survey(
    900,
    client=_clients(900),
    group=np.arange(900) // 3,
    time=np.arange(900.0) % 450,
  )
  order = np.random.default_rng(order_seed).permutation(900)
  shuffled = planning.Survey(*(column[order] for column in survey))
  splitting = {'test_ratio': 0.25}
  if law not in surveys.MIXING or split_by in options.FOR_ALL:
    splitting['split_by'] = split_by
  plan, other = (
    surveys.make_law_plan(law, one, seed=seed, splits=splitting)
    for one in (survey, shuffled)
  )
  assert plan.client_ids == other.client_ids
  np.testing.assert_array_equal(plan.owners[:, order], other.owners)
  np.testing.assert_array_equal(plan.roles[order], other.roles)
  # Whatever the law: held-out examples are nobody's, every other one has one
  # owner in a distribution at most, and everybody has something.
  assert np.all(plan.owners[:, plan.roles == splits.HELD_OUT] == -1)
  owned = np.bincount(
    plan.owners[plan.owners >= 0], minlength=len(plan.client_ids)
  )
  assert owned.min() > 0


@pytest.mark.parametrize('law', sorted(surveys.LAWS))
def test_other_seeds_deal_other_examples(law):
  survey = surveys.survey(900, client=_clients(900))
  one, same, other = (
    surveys.make_law_plan(law, survey, seed=s) for s in (0, 0, 1)
  )
  np.testing.assert_array_equal(one.owners, same.owners)
  np.testing.assert_array_equal(one.roles, same.roles)
  assert np.any(one.owners != other.owners)


def test_labels_at_several_places_are_no_classes_to_divide():
  config = config_lib.from_dict(
    options.DatasetConfig,
    {
      'source': {'name': 'digits', 'options': {}},
      'partition': {
        'law': 'shards',
        'num_clients': 2,
        'options': {'shards_per_client': 2},
      },
    },
  )
  text = "'shards' divides classes, and an example has a label at each of 5"
  with pytest.raises(errors.ConfigError, match=text):
    partition_plan.check_config(
      config, num_sources=1, num_classes=9, has_test_split=False, y_shape=(5,)
    )


def test_more_shards_than_clients():
  with pytest.raises(errors.ConfigError, match='num_shards is 9 .* 8 clients'):
    surveys.make_plan(surveys.survey(600), num_shards=9)


@pytest.mark.parametrize('law', sorted({*surveys.LAWS} - {*surveys.MIXING}))
def test_feature_shift_changes_nothing_else(law):
  """Each client sees all it has in one of three ways, and has the same."""
  survey = surveys.survey(900, client=_clients(900))
  splitting = {'test_ratio': 0.25, 'split_by': 'client'}
  plain = surveys.make_law_plan(law, survey, splits=splitting)
  shifted = surveys.make_law_plan(
    law,
    survey,
    names=('original', 'inverted', 'noisy'),
    distributions={'kind': 'noise', 'noise_levels': (0.0, 0.1, 0.2)},
    splits=splitting,
  )
  assert plain.mixtures is None
  np.testing.assert_array_equal(plain.roles, shifted.roles)
  np.testing.assert_array_equal(plain.owners[0], shifted.owners.max(axis=0))
  for source, owners in enumerate(shifted.owners):
    for client in set(owners[owners >= 0]):
      assert shifted.mixtures[client, source] == 1
  assert shifted.mixtures.sum() == len(shifted.client_ids)


@pytest.mark.parametrize(
  ('text', 'overrides'),
  [
    (
      'the labels are numbers',
      {'partition': surveys.LAWS['shards'], 'num_classes': 0},
    ),
    ('mixes exactly 2', {'partition': surveys.LAWS['linear']}),
    ('mixes exactly 2', {'partition': surveys.LAWS['10:90']}),
    (
      'no official test split',
      {'partition': surveys.LAWS['iid'], 'splits': {'pool_test_split': True}},
    ),
    (
      'this source has distributions of its own',
      {
        'names': surveys.TURNS,
        'partition': surveys.LAWS['shards'],
        'distributions': {'kind': 'native'},
        'splits': {'client_test': 'all_of_classes'},
      },
    ),
    (
      'needs held-out examples',
      {
        'partition': surveys.LAWS['shards'],
        'splits': {'client_test': 'dealt', 'held_out_fraction': 0.0},
      },
    ),
  ],
)
def test_partition_that_never_can_be_met(text, overrides):
  """It is refused before any example is read."""
  with pytest.raises(errors.ConfigError, match=text):
    surveys.make_plan(
      None,
      **{'names': ('all',), 'sizes': {}, 'distributions': {}} | overrides,
    )


def test_examples_in_the_gap_are_nobodys():
  """Splits per client are made after its examples are dealt."""
  survey = surveys.survey(100, client=_clients(100), time=np.arange(100.0))
  splitting = {'test_ratio': 1.0, 'split_by': 'client_time', 'time_gap': 20.0}
  plan = surveys.make_law_plan('natural', survey, splits=splitting)
  in_gap = plan.roles == splits.IN_GAP
  assert in_gap.sum() > 10
  assert np.all(plan.owners[:, in_gap] == planning.NOBODY)
  assert np.any(plan.owners[:, plan.roles == 2] != planning.NOBODY)
