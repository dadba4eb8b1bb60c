"""Summaries over clients against hand-computed numbers."""

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tff_algos.evaluation import summaries


def test_means_of_three_clients():
  found = summaries.summarize(
    [0.5, 1.0, 0.0], [10, 30, 60], higher_is_better=True
  )
  assert found.weighted_mean == pytest.approx(0.35)
  assert found.plain_mean == pytest.approx(0.5)
  assert found.worst_decile == 0.0
  assert found.num_nan == 0


def test_worst_decile_is_the_low_end_of_accuracy_and_the_high_end_of_error():
  values = np.arange(29.0)
  ones = np.ones(29)
  accuracy = summaries.summarize(values, ones, higher_is_better=True)
  error = summaries.summarize(values, ones, higher_is_better=False)
  assert accuracy.worst_decile == pytest.approx(0.5)  # 10 % of 29: 2 clients
  assert error.worst_decile == pytest.approx(27.5)
  stacked = np.stack([values, values[::-1]])
  for higher_is_better, expected in ((True, 0.5), (False, 27.5)):
    found = summaries.worst_decile(stacked, higher_is_better=higher_is_better)
    np.testing.assert_allclose(found, [expected, expected])


def test_clients_without_a_value_are_left_out_and_counted():
  found = summaries.summarize(
    [0.5, np.nan, np.nan, 0.25], [1, 0, 5, 3], higher_is_better=True
  )
  assert found.weighted_mean == pytest.approx((0.5 + 0.75) / 4)
  assert found.num_nan == 1


def test_no_client_gives_nan():
  found = summaries.summarize([np.nan], [0], higher_is_better=True)
  assert np.isnan(found[:3]).all()
  assert found.num_nan == 0


def test_an_infinite_error_is_not_hidden():
  found = summaries.summarize([1.0, np.inf], [1, 1], higher_is_better=False)
  assert found.plain_mean == np.inf


@hypothesis.given(
  st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 50)), min_size=1, max_size=40
  ),
  st.randoms(),
  st.booleans(),
)
@hypothesis.settings(max_examples=50)
def test_the_order_of_clients_does_not_matter(clients, random, better):
  shuffled = random.sample(clients, len(clients))
  found, again = (
    summaries.summarize(*zip(*rows, strict=True), higher_is_better=better)
    for rows in (clients, shuffled)
  )
  np.testing.assert_allclose(again, found)
  if not np.isnan(found.plain_mean):
    sign = 1 if better else -1
    assert sign * found.worst_decile <= sign * found.plain_mean + 1e-12


def test_a_mean_is_partial_if_it_leaves_out_clients():
  for name in ('a', 'a_plain_mean', 'a_worst_decile'):
    assert summaries.is_partial({name: 1, 'a_num_nan': 2.0}, name)
  for whole in ({'a_num_nan': 0}, {'a_num_nan': '0.0'}, {'a_num_nan': ''}, {}):
    assert not summaries.is_partial(whole, 'a')
    assert summaries.whole({**whole, 'a': '0.0'}, 'a') == 0
    assert math.isnan(summaries.whole({**whole, 'a': ''}, 'a'))
  assert math.isnan(summaries.whole({'a': 1.0, 'a_num_nan': 2.0}, 'a'))


@pytest.mark.parametrize(
  ('metric', 'expected'),
  [
    ('participating/test/personalized/accuracy', False),
    ('participating/test/personalized/accuracy_worst_decile', False),
    ('participating/test/personalized/accuracy_num_nan', True),
    ('participating/test/personalized/mse', True),
    ('participating/test/personalized/mse_worst_decile', True),
    ('unseen/test/cluster/mse_plain_mean', True),
    ('participating/membership/error', True),
    ('participating/membership/num_undecided', True),
    ('train/loss', True),
    ('train/moved_clients', True),
    ('train/consensus_distance', True),
    # Of groups that part it grows.
    ('train/cluster_model_distance', False),
    ('loss/accuracy', False),
  ],
)
def test_the_smallest_error_is_the_best(metric, expected):
  assert summaries.is_error(metric) == expected


def test_bad_input_is_named():
  with pytest.raises(ValueError, match=r'\(1,\) and \(2,\)'):
    summaries.summarize([1.0], [1, 2], higher_is_better=True)
  with pytest.raises(ValueError, match='>= 0, got -1'):
    summaries.summarize([1.0], [-1], higher_is_better=True)
  for labels, got in (([0, 3], '0 to 3'), ([-1, 2], '-1 to 2')):
    with pytest.raises(ValueError, match=f'from 0 to 2, got {got}'):
      summaries.label_histograms([np.array(labels)], 3)


def test_histograms():
  labels = [np.array([0, 2, 2]), np.array([], np.int32)]
  histograms = summaries.label_histograms(labels, 3)
  np.testing.assert_array_equal(histograms, [[1, 0, 2], [0, 0, 0]])


def test_majority_class_by_hand():
  train = np.array([[3, 1, 0], [0, 2, 2], [0, 0, 0], [0, 4, 0]])
  test = np.array([[3, 1, 0], [1, 0, 3], [0, 3, 1], [0, 0, 0]])
  # Own classes: 0; 1 (a tie); none, so that of all; 1. All: 3, 7, 2, so 1.
  assert summaries.majority_scores(train, test) == pytest.approx(
    {'per_client': 6 / 12, 'global': 4 / 12}
  )


def test_classes_tie_for_all_clients():
  train, test = np.array([[1, 0], [0, 1]]), np.array([[2, 0], [2, 0]])
  found = summaries.majority_scores(train, test)
  assert found == {'per_client': 0.5, 'global': 1.0}


def test_no_class_is_scored_without_test_labels():
  found = summaries.majority_scores(np.array([[1, 0]]), np.array([[0, 0]]))
  assert np.isnan([found['per_client'], found['global']]).all()


def test_share_of_the_most_frequent_label():
  assert summaries.majority_share(np.array([3, 1, 3, 0, 3])) == 0.6
  assert np.isnan(summaries.majority_share(np.array([], np.int32)))
