"""The tables of a sweep, against numbers by hand."""

import math

import pytest

from tests.testing import fake_sweep
from tff_algos.reports.sweep import measures, sweep_table
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib

_AXES = (plan_lib.Axis('algorithm.weight', 'weight', (0.1, 1.0)),)
_TEST = 'participating/test/personalized/accuracy'


@pytest.fixture
def sweep(tmp_path):
  levels = {(0.1,): (0.2, 0.4), (1.0,): (0.3,)}
  return fake_sweep.read(tmp_path, levels, _AXES)


def test_a_row_for_each_run(sweep):
  rows = sweep_table.run_rows(sweep)
  assert [row['folder'] for row in rows] == [
    *('weight=0.1/seed_0', 'weight=0.1/seed_1', 'weight=1/seed_0')
  ]
  assert [row['algorithm.weight'] for row in rows] == [0.1, 0.1, 1.0]
  second = rows[1]
  assert (second['seed'], second['found_clusters']) == (1, True)
  assert second[_TEST] == pytest.approx(0.4)
  assert second[f'best_by_validation/{_TEST}'] == pytest.approx(0.2)
  # Raw numbers are the run's own, in its own order of clusters.
  assert second['held_out/a/cluster_1/accuracy'] == pytest.approx(0.6)


def test_a_row_for_each_cell(sweep):
  first, second = sweep_table.cell_rows(sweep)
  assert (first['algorithm.weight'], first['num_runs']) == (0.1, 2)
  assert first['success_rate'] == 1.0
  assert first[f'{_TEST} mean'] == pytest.approx(0.3)
  assert first[f'{_TEST} std'] == pytest.approx(0.2 / math.sqrt(2))
  assert first[f'best_by_validation/{_TEST} mean'] == pytest.approx(0.15)
  assert math.isnan(second[f'{_TEST} std'])


def test_clusters_are_matched_before_they_are_averaged(sweep):
  # The clusters of seed 1 are those of seed 0 the other way round: averaged by
  # number, all would be alike.
  row = sweep_table.cell_rows(sweep)[0]
  found = {
    name.removesuffix(' mean'): value
    for name, value in row.items()
    if name.startswith('held_out/') and name.endswith(' mean')
  }
  assert found == pytest.approx(
    {
      'held_out/a/cluster_of_a/accuracy': 0.5,
      'held_out/b/cluster_of_a/accuracy': 0.2,
      'held_out/a/cluster_of_b/accuracy': 0.25,
      'held_out/b/cluster_of_b/accuracy': 0.6,
    }
  )


def test_console_has_a_block_for_each_cell(sweep):
  text = sweep_table.console(sweep, ['participating/test/'])
  first, second = text.strip().split('\n\n')
  head, columns, line = first.splitlines()
  assert head == (
    'weight=0.1  (2 seeds; clusters found (95 % interval): 2 of 2 (34 to 100 %))'
  )
  assert columns.split() == ['mean', 'std', 'metric']
  assert line.split() == ['0.3', '0.1414', _TEST]
  assert second.splitlines()[-1].split() == ['0.3', '–', _TEST]


def test_console_shows_what_the_page_shows(sweep):
  text = sweep_table.console(sweep, [])
  names = [line.split()[-1] for line in text.splitlines() if '/' in line]
  assert names == [measures.ARI, _TEST, measures.SENT] * 2


def test_fewer_seeds_than_runs_are_told(tmp_path):
  levels = {(): (0.2, math.nan)}
  text = sweep_table.console(fake_sweep.read(tmp_path, levels, ()), [_TEST])
  assert text.startswith(fake_sweep.NAME)
  assert f'{_TEST} (1 of 2 seeds)' in text


@pytest.mark.parametrize(
  ('num_nan', 'told'),
  [((0, 2), ('0.2', '–', '(1 of 2 seeds)')), ((1, 2), ('–', '–', '(0 of 2'))],
)
def test_a_seed_whose_mean_leaves_out_clients_counts_as_diverged(
  sweep, num_nan, told
):
  for point, count in zip(sweep.cells[0].last, num_nan, strict=True):
    point[f'{_TEST}_num_nan'] = count
  text = sweep_table.console(sweep, [])
  (line,) = (line for line in text.splitlines() if f'{_TEST} ' in line)
  assert line.split()[:2] == [*told[:2]] and told[2] in line
  row = sweep_table.cell_rows(sweep)[0]
  assert row[f'{_TEST}_num_nan mean'] == sum(num_nan) / 2


def test_no_seed_is_a_dash(sweep):
  nothing = sweep_lib.Spread(math.nan, math.nan, 0)
  measure = measures.Measure('x', 'X')
  assert sweep_table.spread_text(sweep, measure, nothing) == '–'
