"""The page of a sweep as a whole."""

import html
import math
import re
import urllib.parse

import numpy as np
import pytest

from tests.testing import fake_search, fake_sweep, fake_workdir, pages
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import sweep_page

_AXES = (
  plan_lib.Axis('algorithm.weight', 'weight', (0.1, 1.0)),
  plan_lib.Axis('law', '', ('10:90', 'a rather long name of a law')),
)
_LEVELS = {
  (weight, law): (0.2 + weight / 10, 0.3 + weight / 5)
  for weight in _AXES[0].values
  for law in _AXES[1].values
}


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('sweep')
  sweep = fake_sweep.read(workdir, _LEVELS, _AXES)
  return sweep, sweep_page.write_report(sweep)


def test_pictures_are_whole_and_nothing_else_is_left(written):
  sweep, index = written
  names = {
    'effect_weight.png',
    'cells.png',
    'memberships.png',
    'rounds.png',
    'communication.png',
  }
  assert {path.name for path in index.parent.iterdir()} == {
    *names,
    'index.html',
  }
  assert not list(sweep.workdir.glob('.report*'))
  for name in names:
    pages.check_picture(index.with_name(name).read_bytes())


def test_the_page_refers_only_to_files_that_are_there(written):
  _, index = written
  references = re.findall(r'(?:href|src)="([^"]*)"', index.read_text())
  assert len(references) == 2 * 5 + 8  # Pictures twice, runs once.
  for reference in references:
    path = index.parent / urllib.parse.unquote(reference)
    assert path.exists(), reference


def test_tables_hold_the_numbers(written):
  text = re.sub(r'\s+', ' ', html.unescape(written[1].read_text()))
  assert '8 of 8 runs are finished' in text
  assert '(0.1, 1)' in text
  # Levels 0.21 and 0.32; on source a 0.2 more, on b 0.3 more.
  assert '<td>26.5 ± 7.8</td>' in text
  assert '<td>a</td> <td>46.5 ± 7.8</td> <td>16.5 ± 7.8</td>' in text
  assert '<td>b</td> <td>21.5 ± 7.8</td> <td>56.5 ± 7.8</td>' in text
  assert '2 of 2 (34 to 100 %)' in text


@pytest.mark.usefixtures('no_pixels')
def test_a_mean_over_fewer_seeds_names_their_number(tmp_path):
  levels = {(0.1,): (0.9, math.nan, math.nan), (1.0,): (0.8, 0.8, 0.8)}
  sweep = fake_sweep.read(tmp_path, levels, _AXES[:1])
  text = sweep_page.write_report(sweep).read_text()
  assert '<td>90.0 (1 of 3 seeds)</td>' in text
  assert '<td>80.0 ± 0.0</td>' in text


@pytest.mark.usefixtures('no_pixels')
def test_without_validation_there_is_no_table_of_best_rounds(tmp_path):
  fake_sweep.write(tmp_path, {(): (0.2,)}, ())
  heading = 'In the best round by validation'
  page = sweep_page.write_report(sweep_lib.read(tmp_path))
  assert heading in page.read_text()
  (run,) = tmp_path.glob('*/seed_0')
  fake_workdir.change_summary(run, best_by_validation=None)
  page = sweep_page.write_report(sweep_lib.read(tmp_path))
  assert heading not in page.read_text()


def test_the_same_files_give_the_same_bytes(written):
  sweep, index = written
  before = {path: path.read_bytes() for path in index.parent.iterdir()}
  sweep_page.write_report(sweep)
  assert {path: path.read_bytes() for path in before} == before


def test_refused_runs_are_told_and_what_is_told_is_escaped(tmp_path):
  attack = '<script>x</script>'
  plan = fake_sweep.write(tmp_path, {(): (0.2,)}, ())
  refused = plan_lib.PlannedRun('seed_9', (), 9, attack)
  fake_sweep.write_plan(
    tmp_path, plan._replace(name=attack, runs=(*plan.runs, refused))
  )
  text = sweep_page.write_report(sweep_lib.read(tmp_path)).read_text()
  assert '<script' not in text
  assert f'seed_9 failed:</strong> {html.escape(attack)}' in text
  assert '1 of 2 runs are finished' in text


@pytest.mark.usefixtures('no_pixels')
def test_without_ground_truth_no_clusters_are_found(tmp_path):
  levels = {(value,): (0.2, 0.3) for value in (0.1, 1.0)}
  sweep = fake_sweep.read(tmp_path, levels, _AXES[:1], ari=None, planted=False)
  assert all(cell.rate is None for cell in sweep.cells)
  text = sweep_page.write_report(sweep).read_text()
  for word in ('clusters found', 'Wilson', 'recovered', 'share a cluster'):
    assert word not in text


@pytest.mark.usefixtures('no_pixels')
def test_a_single_source_has_no_table_of_matched_clusters(tmp_path):
  fake_sweep.write(tmp_path, {(): (0.2,)}, ())
  heading = 'Cluster models by source'
  assert (
    heading in sweep_page.write_report(sweep_lib.read(tmp_path)).read_text()
  )
  sweep = sweep_lib.read(tmp_path)
  run = sweep.example
  run.__dict__.update(source_names=('a',), held_out_scores=np.ones((2, 1)))
  assert heading not in sweep_page.write_report(sweep).read_text()


@pytest.mark.usefixtures('no_pixels')
@pytest.mark.parametrize('sources', [('a', 'c'), ('a', 'b', 'c')])
def test_seeds_of_other_sources_have_no_table_of_matched_clusters(
  tmp_path, sources
):
  sweep = fake_sweep.read(tmp_path, {(): (0.2, 0.4)}, ())
  sweep.cells[0].runs[1].__dict__.update(
    source_names=sources, held_out_scores=np.ones((2, len(sources)))
  )
  page = sweep_page.write_report(sweep).read_text()
  assert 'Cluster models by source' not in page


def test_the_page_of_a_search_has_its_trials_and_its_pictures(tmp_path):
  values = {'weight': (0.1, 1.0, 5.0)}
  sweep = fake_search.read(tmp_path, values, (0.2, 0.4, None))
  index = sweep_page.write_report(sweep)
  assert {path.name for path in index.parent.iterdir()} == {
    *('search_history.png', 'search_coordinates.png', 'index.html')
  }
  page = index.read_text()
  assert f'objective is <code>{fake_search.METRIC}</code>' in page
  cells = re.findall(r'<td>([^<]*)</td>', page)
  assert cells[:8] == [
    *('1', '1', '0.4', 'finished'),
    *('0', '0.1', '0.2', 'finished'),
  ]
  assert 'pruned after round 1 of seed 0' in page
  assert 'A cell is' not in page
