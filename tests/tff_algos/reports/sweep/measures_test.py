"""What makes runs comparable."""

import math

import numpy as np
import pytest

from tests.testing import fake_sweep, fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.sweep import measures


@pytest.mark.parametrize('order', [(0, 1), (1, 0)])
def test_clusters_in_any_order_give_one_table(tmp_path, order):
  run = fake_sweep.read_run(tmp_path, level=0.5, order=order)
  np.testing.assert_allclose(
    measures.matched_scores(run), [[0.7, 0.4], [0.45, 0.8]]
  )
  last = measures.last(run)
  names = {
    'held_out/a/cluster_of_a/accuracy': 0.7,
    'held_out/b/cluster_of_a/accuracy': 0.4,
    'held_out/a/cluster_of_b/accuracy': 0.45,
    'held_out/b/cluster_of_b/accuracy': 0.8,
  }
  assert {name: last[name] for name in names} == pytest.approx(names)


def test_clients_match_clusters_with_planted_sources(tmp_path):
  # The clusters that their clients tell apart are each worse on its source.
  run = fake_sweep.read_run(tmp_path)
  run.__dict__['held_out_scores'] = np.array([[0.5, 0.9], [0.8, 0.6]])
  np.testing.assert_array_equal(
    measures.matched_scores(run), [[0.5, 0.9], [0.8, 0.6]]
  )


def test_the_sum_of_scores_is_the_best(tmp_path):
  # One cluster is best on both sources: it may stand for only one of them.
  run = fake_sweep.read_run(tmp_path, planted=False)
  run.__dict__['held_out_scores'] = np.array([[0.9, 0.8], [0.7, 0.5]])
  np.testing.assert_array_equal(
    measures.matched_scores(run), [[0.7, 0.5], [0.9, 0.8]]
  )


def test_an_error_is_matched_to_be_least(tmp_path):
  run = fake_sweep.read_run(tmp_path, score='mse', planted=False)
  # On source a cluster 1 errs less (0.45 against 0.7), on b cluster 0 does.
  np.testing.assert_allclose(
    measures.matched_scores(run), [[0.45, 0.8], [0.7, 0.4]]
  )


def test_a_source_without_a_cluster_is_unknown(tmp_path):
  run = fake_sweep.read_run(tmp_path, planted=False)
  run.__dict__['held_out_scores'] = np.array([[0.9, 0.2, 0.3], [0.1, 0.2, 0.8]])
  matched = measures.matched_scores(run)
  assert np.isnan(matched[1]).all()
  np.testing.assert_array_equal(matched[2], [0.1, 0.2, 0.8])


def test_one_model_needs_no_match(tmp_path):
  run = fake_sweep.read_run(tmp_path)
  run.__dict__['num_clusters'] = 1
  assert measures.matched_scores(run) is None
  assert measures.found_clusters(run) is None


def test_what_was_sent_is_summed_over_rounds(tmp_path):
  run = fake_sweep.read_run(tmp_path, num_rounds=3)
  np.testing.assert_array_equal(run.sent().values, [0, 100, 200, 300])
  assert measures.last(run)['cost/total_floats'] == 300


def test_the_evaluated_round_has_the_metrics_of_its_training(tmp_path):
  run = fake_sweep.read_run(tmp_path, num_rounds=3)
  run.rounds.columns['train/loss'] = ('', '3.0', '2.0', '1.0')
  run.rounds.columns['train/other'] = ('', '1.0', '', '')
  run.rounds.columns['seconds'] = ('', '1', '1', '1')
  found = measures.last(run)
  assert (found['train/loss'], found['cost/uplink_floats']) == (1, 40)
  assert {'train/other', 'seconds'}.isdisjoint(found)
  run.summary['last'] |= {'round': 2, 'train/loss': 2.5}
  assert measures.last(run)['train/loss'] == 2.5


def test_only_what_is_not_of_a_numbered_cluster_may_be_averaged():
  assert not measures.may_be_averaged('held_out/a/cluster_0/loss')
  assert not measures.may_be_averaged('held_out/a/cluster_12/accuracy')
  assert measures.may_be_averaged('held_out/b/cluster_of_a/accuracy')
  assert measures.may_be_averaged('held_out/mean/best_cluster/accuracy')


@pytest.mark.parametrize(
  ('options', 'found'),
  [
    ({}, True),
    ({'ari': 0.9}, True),
    ({'ari': 0.89}, False),
    ({'ari': float('nan')}, False),
    # Collapsed: the unseen client's choice does not help.
    ({'ari': 1.0, 'cluster_ids': (0, 0, 0, 0)}, False),
    # Nothing is planted, so there is nothing to find.
    ({'ari': None, 'planted': False}, None),
    ({'ari': None, 'planted': False, 'cluster_ids': (0, 0, 0, 0)}, None),
  ],
)
def test_clusters_are_found_if_they_agree_and_are_used(
  tmp_path, options, found
):
  run = fake_sweep.read_run(tmp_path, **options)
  assert measures.found_clusters(run) is found


def test_a_spare_cluster_may_stay_empty(tmp_path):
  fake_sweep.write_run(tmp_path)
  fake_workdir.change_summary(tmp_path, num_clusters=3)
  assert measures.found_clusters(run_lib.read(tmp_path)) is True


def test_all_metrics_of_an_evaluation_are_of_its_round(tmp_path):
  """As after `binaries.evaluate --round=best`."""
  run = fake_sweep.read_run(tmp_path, level=0.5, num_rounds=4)
  last = run.summary['last']
  run.summary['last'] = {name: value / 2 for name, value in last.items()}
  found = measures.last(run)
  assert (found['round'], found['cost/total_floats']) == (2, 200)
  assert found['held_out/a/cluster_of_a/accuracy'] == pytest.approx(0.35)
  assert found['held_out/b/cluster_of_a/accuracy'] == pytest.approx(0.2)


def test_the_best_round_has_what_was_sent_until_then(tmp_path):
  run = fake_sweep.read_run(tmp_path, num_rounds=5)
  assert measures.best(run)['round'] == 4
  assert measures.best(run)['cost/total_floats'] == 400
  run.summary.pop('best_by_validation')
  assert measures.best(run) == {}


@pytest.mark.parametrize(
  ('score', 'unit', 'mean', 'std', 'text'),
  [
    ('accuracy', 'score', 0.8567, 0.0123, '85.7 ± 1.2'),
    ('accuracy', 'score', 0.8567, math.nan, '85.7'),
    ('mse', 'score', 25.865, 2.252, '25.9 ± 2.3'),
    ('mse', 'score', 1234.5, 20.4, '1234 ± 20'),
    ('mse', 'score', 0.01234, 0.001, '0.0123 ± 0.0010'),
    ('mse', 'score', 0.0, 0.0, '0.000 ± 0.000'),
    ('mse', 'share', 0.038, 0.002, '3.8 ± 0.2'),
    ('mse', '', -0.0169, 0.0, '-0.017 ± 0.000'),
    ('mse', 'floats', 149_086.0, 44.5, '149.1k ± 44.5'),
    ('mse', 'rounds', 102.31, 8.12, '102.3 ± 8.1'),
  ],
)
def test_values_read_in_their_unit(tmp_path, score, unit, mean, std, text):
  run = fake_sweep.read_run(tmp_path, score=score)
  assert measures.Measure('x', 'X', unit).text(run, mean, std) == text
