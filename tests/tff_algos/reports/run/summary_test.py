"""The table of the numbers that matter most."""

import shutil

import numpy as np
import pytest

from tests.testing import fake_workdir
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run import summary


def test_rows_show_both_rounds(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=4)
  fake_workdir.change_summary(
    tmp_path,
    last={'round': 4, 'participating/test/personalized/accuracy': 0.9514},
    best_by_validation={
      'round': 2,
      'participating/test/personalized/accuracy': 0.9366,
      'held_out/upright/cluster_0/accuracy': 0.5,
      'held_out/upright/cluster_1/accuracy': 0.75,
      'participating/membership/ari': float('nan'),
    },
  )
  shutil.rmtree(tmp_path / 'memberships')
  assert summary.rows(run_lib.read(tmp_path)) == [
    ('round', '4', '2'),
    ('personalized models', '95.1 %', '93.7 %'),
    ('best cluster on held-out upright', '–', '(1) 75.0 %'),
    ("majority class of each client's training labels", '14.6 %', '14.6 %'),
    ("majority class of all clients' training labels", '10.4 %', '10.4 %'),
  ]


def test_distances_from_the_truth_before_and_after(tmp_path):
  fake_workdir.write(tmp_path, num_clients=4, num_rounds=4)
  last = np.array([[0.12, 0.88], [0.78, 0.22], [0.28, 0.72], [0.92, 0.08]])
  fake_workdir.write_memberships(tmp_path, {0: np.full([4, 2], 0.5), 4: last})
  rows = summary.rows(run_lib.read(tmp_path))
  row = ('membership, total variation, median (mean)', '0.070 (0.085)', '–')
  assert row in rows
  assert rows[rows.index(row) + 1] == ('  in round 0', '0.400 (0.400)', '–')
  last[3] = 0  # Never sampled.
  fake_workdir.write_memberships(tmp_path, {4: last})
  rows = summary.rows(run_lib.read(tmp_path))
  row = ('membership, total variation, median (mean)', '0.120 (0.107)', '–')
  left_out = ('  clients left out, never sampled', '1', '–')
  assert rows[rows.index(row) + 1] == left_out


def test_the_best_error_is_the_smallest(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=4, score='mse')
  points = {
    'held_out/upright/cluster_0/mse': 3.0,
    'held_out/upright/cluster_1/mse': 20.0,
  }
  fake_workdir.change_summary(tmp_path, last=points, best_by_validation={})
  rows = summary.rows(run_lib.read(tmp_path))
  assert ('best cluster on held-out upright', '(0) 3.00', '–') in rows


def test_sources_without_held_out_examples_have_no_row(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=4)
  point = {
    'round': 4,
    'held_out/upright/cluster_0/accuracy': float('nan'),
    'held_out/rotated_90/cluster_0/accuracy': None,
    'held_out/num_distinct_best_clusters': 0,
  }
  fake_workdir.change_summary(tmp_path, last=point, best_by_validation=point)
  labels = [row.label for row in summary.rows(run_lib.read(tmp_path))]
  assert not [one for one in labels if 'best' in one]


def test_a_model_that_is_never_right_has_a_row(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=4)
  point = {'round': 4, 'held_out/upright/cluster_0/accuracy': 0.0}
  fake_workdir.change_summary(tmp_path, last=point, best_by_validation={})
  rows = summary.rows(run_lib.read(tmp_path))
  assert ('best cluster on held-out upright', '(0) 0.0 %', '–') in rows


@pytest.mark.parametrize('clusters', [1, 2])
@pytest.mark.parametrize('score', ['accuracy', 'mse'])
def test_no_line_is_wider_than_a_terminal(tmp_path, clusters, score):
  names = ('upright', 'a_source_whose_name_is_far_too_long_for_any_terminal')
  fake_workdir.write(
    tmp_path,
    num_rounds=2,
    num_clusters=clusters,
    score=score,
    source_names=names,
  )
  text = summary.console_summary(tmp_path)
  assert max(map(len, text.splitlines())) == 80
  assert 'config 0123456789abcdef' in text
  assert text.splitlines()[3].split() == ['round', '2', 'best', '(valid.)']
  assert 'unseen clients' in text


def test_one_sentence_says_what_was_run(tmp_path):
  sentence = summary.heading(fake_workdir.read(tmp_path, num_rounds=4))
  assert sentence.startswith(
    'fed_soft trained 2 cluster models on 24 clients whose examples come from '
    '2 source distributions (upright, rotated_90), in 4 rounds and '
  )


def test_rounds_of_a_continued_run(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=8)
  fake_workdir.keep_rounds_from(tmp_path, 5)
  sentence = summary.heading(run_lib.read(tmp_path))
  assert ', in 3 rounds (6 to 8) and ' in sentence
  assert '\n3 rounds (6 to 8) in ' in summary.console_summary(tmp_path)


@pytest.mark.parametrize(
  ('seconds', 'text'),
  [(0.25, '0.25 s'), (59, '59 s'), (600, '10 min'), (9000, '2 h 30 min')],
)
def test_run_time(tmp_path, seconds, text):
  fake_workdir.write(tmp_path, num_rounds=2)
  (tmp_path / 'metrics.csv').write_text(f'round,seconds\n0,\n1,{seconds}\n')
  assert summary.run_time(run_lib.read(tmp_path)) == text


def test_warnings_come_last_in_whole_words(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  text = 'round,clients/invalid\n0,\n1,2\n2,1\n'
  (tmp_path / 'metrics.csv').write_text(text)
  sentence = '3 client results were not finite and got weight zero.'
  assert sentence in summary.console_summary(tmp_path).splitlines()


def test_scores_on_training_data_are_labelled(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  last = {
    f'participating/{split}/{model}/accuracy{end}': value
    for split, model, end, value in (
      ('test', 'personalized', '', 0.81),
      ('test', 'local', '', 0.815),
      ('test', 'cluster', '', 0.82),
      ('test', 'cluster', '_plain_mean', 0.83),
      ('train', 'personalized', '', 0.91),
      ('train', 'personalized', '_plain_mean', 0.92),
      ('train', 'personalized', '_worst_decile', 0.93),
      ('train', 'cluster', '', 0.94),
    )
  }
  last['held_out/upright/cluster_0/accuracy'] = 0.95
  last['held_out/num_distinct_best_clusters'] = 1
  fake_workdir.change_summary(
    tmp_path, last=last, best_by_validation={}, majority_class=None
  )
  shutil.rmtree(tmp_path / 'memberships')
  assert [row[:2] for row in summary.rows(run_lib.read(tmp_path))] == [
    ('personalized models', '81.0 %'),
    ('local models', '81.5 %'),
    ('own cluster', '82.0 %'),
    ('  mean over clients', '83.0 %'),
    ('personalized models, TRAINING data', '91.0 %'),
    ('  mean over clients', '92.0 %'),
    ('own cluster, TRAINING data', '94.0 %'),
    ('best cluster on held-out upright', '(0) 95.0 %'),
    ('  distinct clusters among the best', '1 of 2'),
  ]


@pytest.mark.parametrize(
  ('clusters', 'text'),
  [((0, 1, 1), 'round 1'), ((1, 1, 0), 'still changing'), ((1,), None)],
)
def test_settled_round(tmp_path, clusters, text):
  fake_workdir.write(tmp_path, num_rounds=2)
  fake_workdir.write_memberships(
    tmp_path, {r: np.eye(2)[[c] * 24] for r, c in enumerate(clusters)}
  )
  rows = summary.rows(run_lib.read(tmp_path))
  found = [row.last for row in rows if row.label.endswith('unchanged since')]
  assert found == ([] if text is None else [text])


@pytest.mark.parametrize('shares', [(0.7, 0.7), (0.2, 0.7, 0.7)])
def test_memberships_without_a_new_estimate_are_not_still_changing(
  tmp_path, shares
):
  fake_workdir.write(tmp_path, num_rounds=2)
  fake_workdir.write_memberships(
    tmp_path, {r: np.array([[s, 1 - s]] * 24) for r, s in enumerate(shares)}
  )
  rows = summary.rows(run_lib.read(tmp_path))
  (found,) = [row for row in rows if row.label.endswith('unchanged since')]
  assert found.last == 'no new estimate'


@pytest.mark.parametrize(
  ('epsilon', 'text'), [(1.0049, '1.01'), (1.1, '1.10'), (0.004, '0.01')]
)
def test_a_bound_is_rounded_up(epsilon, text):
  assert summary._bound_text(epsilon) == text
