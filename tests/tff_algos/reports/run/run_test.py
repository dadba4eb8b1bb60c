"""A run as its files tell it."""

import numpy as np
import pytest

from tests.testing import fake_sweep, fake_workdir
from tff_algos.core import errors, sealed_json
from tff_algos.evaluation import recovery
from tff_algos.reports.run import run as run_lib
from tff_algos.training import metrics_log


def test_facts_of_a_run(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=6)
  assert run.score_name == 'accuracy'
  assert run.source_names == ('upright', 'rotated_90')
  assert (run.num_clusters, run.last_round) == (2, 6)
  series = run.series('participating/test/personalized/accuracy')
  np.testing.assert_array_equal(series.rounds, [0, 2, 4, 6])
  assert run.series('no/such/metric') is None
  assert run.held_out('upright', 7) is None


def test_a_report_is_of_the_evaluated_round(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=6)
  point = {'round': 2, 'held_out/upright/cluster_0/accuracy': 0.25}
  fake_workdir.change_summary(tmp_path, point)
  run = run_lib.read(tmp_path)
  assert run.evaluated_round == 2
  assert run.held_out_scores[0, 0] == 0.25
  assert run.membership_history.rounds.tolist() == [0, 2]


def test_a_run_that_is_logged_as_nan_has_diverged(tmp_path):
  fake_workdir.write(tmp_path)
  metric = 'participating/test/personalized/accuracy'
  with metrics_log.MetricsLog(tmp_path, 4, {}, shows_progress=False) as log:
    log.resume(0, {})
    for round_num, value in ((0, 0.1), (2, 0.9), (4, np.nan)):
      log.record(round_num, {metric: value})
      log.record(round_num + 1, {'seconds': 1.0})
  series = run_lib.read(tmp_path).series(metric)
  np.testing.assert_array_equal(series.rounds, [0, 2])
  assert series.diverged == 4


def test_a_mean_that_leaves_out_clients_is_none_of_the_run(tmp_path):
  """That of round 2 leaves out two clients, the last one."""
  run = fake_sweep.read_run(tmp_path, num_rounds=4)
  metric = 'participating/test/personalized/accuracy'
  run.rounds.columns[metric] = ('0.0', '0.2', '0.9', '0.6', '0.8')
  run.rounds.columns[f'{metric}_num_nan'] = ('0', '0', '2', '0', '1')
  series = run.series(metric)
  np.testing.assert_array_equal(series.rounds, [0, 1, 3])
  assert series.diverged == 4
  # Their number is no mean.
  assert run.series(f'{metric}_num_nan').values.tolist() == [0, 0, 2, 0, 1]


def test_rounds_of_a_continued_run(tmp_path):
  assert fake_workdir.read(tmp_path, num_rounds=8).round_limits == (0, 8)
  fake_workdir.keep_rounds_from(tmp_path, 5)
  run = run_lib.read(tmp_path)
  assert (run.first_round, run.last_round, run.num_rounds) == (5, 8, 3)
  assert run.round_limits == (5, 8)
  fake_workdir.keep_rounds_from(tmp_path, 3)
  assert run_lib.read(tmp_path).round_limits == (8, 9)


def test_tables_that_only_some_programs_write(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2)
  table = run.evaluation_table('own_atoms.csv')
  assert table.numbers('distance_conv_0').max() == 21
  assert run.evaluation_table('nothing.csv') is None
  assert run.series('factors/variance') is None
  text = 'round,variance\n0,0.5\n1,\n2,0.25\n'
  (tmp_path / 'evaluation' / 'factors.csv').write_text(text)
  series = run.series('factors/variance')
  np.testing.assert_array_equal(series[:2], [[0, 2], [0.5, 0.25]])
  assert run.series('factors/latent_loss') is None


def test_unseen_clients_have_no_memberships(tmp_path):
  membership, mixture = fake_workdir.read(tmp_path, num_rounds=2).memberships
  assert membership.shape == mixture.shape == (24, 2)


def test_without_a_planted_truth_clusters_have_sources(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  fake_workdir.forget_mixture(tmp_path)
  run = run_lib.read(tmp_path)
  assert (run.memberships[1], run.planted_names) == (None, ())
  np.testing.assert_array_equal(run.matched_sources, [1, 0])


def test_clusters_in_the_order_of_their_sources(tmp_path):
  # Clusters 0 and 2 share a source; the one that it is not matched to is last.
  order = fake_workdir.read(tmp_path, num_clusters=3).cluster_order
  assert order[0] == 1
  assert sorted(order[1:]) == [0, 2]


def test_names_of_what_is_planted(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=2)
  assert run.planted_names == ('upright', 'rotated_90')
  fake_workdir.change_summary(
    tmp_path, planted_names=['x', 'y'], matched_sources=['y', None]
  )
  run = run_lib.read(tmp_path)
  assert run.planted_names == ('x', 'y')
  np.testing.assert_array_equal(run.matched_sources, [1, recovery.UNMATCHED])


def test_memberships_of_every_evaluation(tmp_path):
  run = fake_workdir.read(tmp_path, num_rounds=5)
  history = run.membership_history
  np.testing.assert_array_equal(history.rounds, [0, 2, 4, 5])
  np.testing.assert_allclose(
    history.at(np.array([3]))[0], run.memberships[0], rtol=1e-6
  )
  np.testing.assert_array_equal(
    run.planted_mixture(history.num_clients), run.memberships[1]
  )
  assert run.planted_mixture(23) is None


@pytest.mark.parametrize(
  ('name', 'binary'),
  [
    ('config.json', 'binaries.train'),
    ('metrics.csv', 'binaries.train'),
    ('evaluation/summary.json', 'binaries.evaluate'),
    ('evaluation/clients.csv', 'binaries.evaluate'),
  ],
)
def test_a_missing_file_is_named_with_its_command(tmp_path, name, binary):
  fake_workdir.write(tmp_path, num_rounds=2)
  (tmp_path / name).unlink()
  with pytest.raises(errors.DataError, match=f'{name} is missing.*{binary} '):
    run_lib.read(tmp_path)


@pytest.mark.parametrize('text', ['{"name": ', '[]', '\xff'])
def test_damaged_json_is_named(tmp_path, text):
  fake_workdir.write(tmp_path, num_rounds=2)
  path = tmp_path / 'evaluation' / 'summary.json'
  path.write_text(text, encoding='latin-1')
  with pytest.raises(errors.DataError, match='summary.json'):
    run_lib.read(tmp_path)


def test_metrics_without_rounds_are_refused(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  (tmp_path / 'metrics.csv').write_text('seconds\n1\n')
  with pytest.raises(errors.DataError, match="no column 'round'"):
    run_lib.read(tmp_path)


def test_empty_sections_read_as_absent(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  path = tmp_path / 'config.json'
  sealed_json.write(path, {'name': 'x', 'config_hash': 'y', 'config': {}})
  assert run_lib.read(tmp_path).config == {}
