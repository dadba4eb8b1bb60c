"""Pages of the papers: equal to stored results, and these to their configs."""

import copy
import dataclasses
import fnmatch
import functools
import json
import pathlib
import shutil

import numpy as np
import pytest

from configs.fed_soft import digits
from docs.reproduction import pages, results
from tests.testing import fake_sweep, registries
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.experiments import experiment

_EXPERIMENTS = results.experiments()
_STORED = [one for one in _EXPERIMENTS.values() if one.record.is_file()]


@pytest.fixture(name='plugins', scope='module', autouse=True)
def _plugins():
  """Keeps the plug-ins of experiments out of other tests.

  A sweep is expanded once, whoever asks.
  """
  original = pages.expand
  cached = functools.cache(lambda *arguments: original(arguments))
  with registries.kept(), pytest.MonkeyPatch.context() as patched:
    patched.setattr(pages, 'expand', lambda arguments: cached(*arguments))
    yield


@pytest.fixture(name='stale', scope='module')
def _stale(plugins):
  return {name: pages.stale_cells(one) for name, one in _EXPERIMENTS.items()}


@pytest.mark.parametrize('page', pages.PAGES, ids=lambda page: page.name)
def test_page_is_as_results_and_configs_have_it(page, stale):
  text = page.read_text()
  assert results.render(text, stale) == text, 'run `make reproduction`'


def test_every_experiment_stands_on_one_page():
  named = [
    name for page in pages.PAGES for name in results.ids(page.read_text())
  ]
  assert sorted(named) == sorted(_EXPERIMENTS)


def test_every_stored_result_is_of_an_experiment():
  stored = {path.resolve() for path in results.FOLDER.glob('results/*/*.json')}
  assert stored == {one.record.resolve() for one in _STORED}


@pytest.mark.parametrize('one', _EXPERIMENTS.values(), ids=lambda one: one.id)
def test_rows_and_claims_are_cells_of_the_sweep(one):
  labels = []
  for arguments in one.sweeps.values():
    plan = pages.expand(arguments).plan
    labels += {
      pages.sweep_lib.plan.label(plan.axes, run.values) for run in plan.runs
    }
  named = {row.cell for row in one.rows}
  named |= {cell for grid in one.grids for row in grid.cells for cell in row}
  assert one.choose_by or named == set(labels)
  # Each cell is of one row, also where rows are patterns.
  matched = [fnmatch.filter(labels, pattern) for pattern in named]
  assert sorted(sum(matched, [])) == sorted(labels)
  assert all(matched)
  assert {
    cell for c in one.claims for pair in c.pairs for cell in pair
  } <= named
  # The picture has a line for each title.
  drawn = [row.title for row in one.rows if row.metric in ('', one.metric)]
  assert len({*drawn}) == len(drawn)


@pytest.mark.parametrize('one', _STORED, ids=lambda one: one.id)
def test_stored_configs_have_their_hashes_and_no_private_paths(one):
  result = results.read(one)
  for cell in result['cells'].values():
    assert cell['config_hash'] == config_lib.config_hash(cell['config'])
    assert len({run['seed'] for run in cell['runs']}) == len(cell['runs'])
    folder = cell['config']['dataset']['source']['options'].get('folder', '')
    assert not pathlib.Path(folder).is_absolute()
    assert all(one['is_clean'] for one in cell['provenance'])


_SWEEP = (
  '--config=configs/fed_avg/digits.py:smoke '
  '--grid=algorithm.server_optimizer.learning_rate=0.5,1.0 --num_seeds=2'
)
_LAB = results.Experiment(
  id='lab/one',
  reproduces='Lab',
  sweep=_SWEEP,
  metric='participating/test/personalized/accuracy',
  rows=(results.Row('learning_rate=0.5', 'Half'),),
)


@pytest.fixture(name='changed')
def _changed(tmp_path, monkeypatch):
  """Returns the function that stores today's configs, but for changes."""
  monkeypatch.setattr(results, '_STORED', tmp_path)

  def store(change):
    cells = {}
    (arguments,) = _LAB.sweeps.values()
    expanded = pages.expand(arguments)
    for run, config in zip(expanded.plan.runs, expanded.configs, strict=True):
      label = pages.sweep_lib.plan.label(expanded.plan.axes, run.values)
      if run.seed == 0:
        cells[label] = {'config': config_lib.to_dict(config)}
    change(cells['learning_rate=0.5']['config'])
    results.write(_LAB, {'cells': cells})
    return pages.stale_cells(_LAB)

  return store


def _seed_1(config):
  config['seed'] = config['dataset']['seed'] = 1


@pytest.mark.parametrize(
  ('change', 'is_stale'),
  [
    (lambda config: None, False),
    (lambda config: config['algorithm'].update(cohort_size=3), True),
    (lambda config: config['algorithm'].update(forgotten=3), True),
    (lambda config: config.update(name='Another title'), True),
    # Options that were added since: at their default, and with another value.
    (lambda config: config['training'].pop('restarts'), False),
    (lambda config: config['algorithm'].pop('cohort_size'), True),
    # An option that was removed since.
    (lambda config: config['algorithm'].update(estimation='batched'), False),
    (lambda config: config['algorithm'].update(estimation='streaming'), True),
    # Seeds, such as of a cell without seed 0.
    (_seed_1, False),
    # Who computes it, and where it is shown.
    (lambda config: config['runtime'].update(name='debug'), False),
    (lambda config: config.pop('tracking'), False),
  ],
)
def test_cells_whose_configs_have_changed_are_stale(changed, change, is_stale):
  assert changed(change) == ({'learning_rate=0.5'} if is_stale else set())


def test_a_cell_that_the_sweep_has_no_more_is_stale(changed):
  def change(config):
    del config

  assert changed(change) == set()
  content = results.read(_LAB)
  content['cells']['learning_rate=7.0'] = content['cells']['learning_rate=0.5']
  results.write(_LAB, content)
  assert pages.stale_cells(_LAB) == {'learning_rate=7.0'}


@pytest.fixture(name='swept')
def _swept(tmp_path):
  """Files of a sweep of two cells with two seeds; returns its folder."""
  axis = pages.sweep_lib.plan.Axis('rate', 'rate', (0.5, 1.0))
  fake_sweep.write(tmp_path, {(0.5,): [0.25, 0.75], (1.0,): [0.5, 0.5]}, [axis])
  for run in tmp_path.glob('*/seed_*'):
    number = int(run.name[-1])
    content = {
      'config': {
        'seed': number,
        'dataset': {'seed': number},
        'runtime': {'name': 'tff'},
      },
      'provenance': [{'revision': f'r{number}'}],
    }
    pages.sealed_json.write(run / 'config.json', content)
    table = (run / 'metrics.csv').read_text().splitlines()
    ends = ['seconds', '', *['1.5'] * (len(table) - 2)]
    (run / 'metrics.csv').write_text(
      '\n'.join(f'{a},{b}' for a, b in zip(table, ends, strict=True)) + '\n'
    )
  return tmp_path


def test_result_of_a_sweep_has_every_seed_and_where_it_was_made(swept):
  found = pages.describe(_LAB, swept)
  assert found['command'] == _LAB.command
  cell = found['cells']['rate=0.5']
  assert cell['provenance'] == [{'revision': 'r0'}, {'revision': 'r1'}]
  assert cell['config'] == {'seed': 0, 'dataset': {'seed': 0}}
  assert cell['config_hash'] == config_lib.config_hash(cell['config'])
  assert cell['rounds'] == [0, 1, 2]
  name = _LAB.metric
  assert cell['runs'] == [
    {'seed': 0, 'seconds': 3.0, 'metrics': {name: [0.0, 0.125, 0.25]}},
    {'seed': 1, 'seconds': 3.0, 'metrics': {name: [0.0, 0.375, 0.75]}},
  ]
  json.dumps(found)


def test_cells_that_a_stored_sweep_lacks_are_kept(swept, tmp_path, monkeypatch):
  monkeypatch.setattr(results, '_STORED', tmp_path / 'stored')
  pages.store(_LAB, swept)
  before = results.read(_LAB)['cells']
  earlier = {**before, 'rate=9': {'config': {}, 'runs': []}}
  results.write(_LAB, {'cells': earlier})
  pages.store(_LAB, swept)
  assert results.read(_LAB)['cells'] == earlier


@pytest.mark.parametrize(
  'changed', [None, 'config', 'rounds', 'metrics', 'fixed_dataset']
)
def test_seeds_of_an_unchanged_cell_are_kept(
  changed, swept, tmp_path, monkeypatch
):
  monkeypatch.setattr(results, '_STORED', tmp_path / 'stored')
  lab = _LAB
  if changed == 'fixed_dataset':
    lab = dataclasses.replace(_LAB, sweep=f'{_SWEEP} --fixed_dataset')
    with pytest.raises(
      errors.DataError, match='has another config than .*seed_0'
    ):
      pages.store(lab, swept)
    for run in swept.glob('*/seed_*'):
      content = pages.sealed_json.read(run / 'config.json', '')
      content['config']['dataset']['seed'] = 0
      pages.sealed_json.write(run / 'config.json', content)
  pages.store(lab, swept)
  both = results.read(lab)['cells']['rate=0.5']
  earlier = copy.deepcopy(both)
  earlier['runs'] = [earlier['runs'][1]]
  earlier['config'].update(seed=1, dataset={'seed': 1})
  earlier['provenance'] = [{'revision': 'r1'}]
  if changed == 'config':
    earlier['config']['dataset']['cohort'] = 5
  elif changed == 'rounds':
    earlier['rounds'] = [0, 1, 4]
  elif changed == 'metrics':
    earlier['runs'][0]['metrics'] = {'loss': [3.0, 2.0, 1.0]}
  results.write(lab, {'cells': {'rate=0.5': earlier}})
  shutil.rmtree(swept / 'rate=0.5' / 'seed_1')
  pages.store(lab, swept)
  alone = {**both, 'runs': both['runs'][:1], 'provenance': [{'revision': 'r0'}]}
  stored = results.read(lab)['cells']['rate=0.5']
  assert stored == (both if changed is None else alone)


def test_an_option_that_was_added_since_is_no_change():
  config = experiment.effective(
    config_lib.to_dict(experiment.parse(digits.get_config('smoke')))
  )
  older = copy.deepcopy(config)
  del older['training']['dropout_rate']
  cells = [
    {'config': one, 'rounds': [0], 'runs': [{'metrics': {}}]}
    for one in (older, config)
  ]
  assert len({str(pages._in_common(_LAB, cell)) for cell in cells}) == 1


def test_commits_whose_runs_are_all_replaced_are_not_named():
  def cell(revision, seconds):
    runs = [{'seed': 0, 'seconds': seconds, 'metrics': {}}]
    config = {'seed': 0, 'dataset': {'seed': 0}}
    made_by = [{'revision': revision}]
    return {
      **{'config': config, 'provenance': made_by},
      **{'rounds': [0], 'runs': runs},
    }

  merged = pages._merged(_LAB, cell('r0', 1.0), cell('r1', 2.0))
  assert merged == cell('r1', 2.0)


def test_a_run_that_names_no_commit_is_refused(swept):
  (run, *_) = swept.glob('*/seed_1')
  pages.sealed_json.write(run / 'config.json', {'config': {}})
  with pytest.raises(errors.DataError, match=f'{run} names no commit.*again'):
    pages.describe(_LAB, swept)


def test_a_metric_that_runs_lack_is_named(swept):
  lab = dataclasses.replace(_LAB, metric='held_out/accuracy')
  with pytest.raises(errors.DataError, match="no round in which 'held_out/acc"):
    pages.describe(lab, swept)


@pytest.mark.parametrize(
  ('end', 'words'),
  [
    ('nan', "has diverged: in round 2 '.*personalized/accuracy' is not finite"),
    ('', 'of a cell end in rounds 1, 2. Run the sweep again'),
  ],
)
def test_a_run_without_the_end_of_its_cell_is_refused(swept, end, words):
  run = swept / 'rate=0.5' / 'seed_1'
  *lines, last = (run / 'metrics.csv').read_text().splitlines()
  names, cells = lines[0].split(','), last.split(',')
  cells[names.index(_LAB.metric)] = end
  (run / 'metrics.csv').write_text('\n'.join([*lines, ','.join(cells)]) + '\n')
  with pytest.raises(errors.DataError, match=words):
    pages.describe(_LAB, swept)


def test_picture_has_a_line_for_each_finished_row(swept):
  lab = dataclasses.replace(
    _LAB,
    rows=(
      results.Row('rate=0.5', 'Half'),
      results.Row('rate=9.0', 'Nine'),
      results.Row('rate=1', 'One'),
    ),
  )
  (axes,) = pages._draw(lab, pages.describe(lab, swept)).axes
  half, one = axes.lines
  np.testing.assert_allclose(half.get_xydata(), [[0, 0], [1, 25], [2, 50]])
  area, _ = axes.collections
  # Of the seeds 0 and 1 in the last round.
  vertices = area.get_paths()[0].vertices
  assert {y for x, y in vertices if x == 2} == {25, 75}
  # From rounds 1 and 2: 12.5 to 75, and a twentieth on either side.
  np.testing.assert_allclose(axes.get_ylim(), [9.375, 78.125])
  assert [half.get_label(), one.get_label()] == ['Half (2)', 'One (2)']


def test_picture_of_a_single_round_has_the_seeds(swept):
  found = pages.describe(_LAB, swept)
  for cell in found['cells'].values():
    cell['rounds'] = [0, 2]
    for run in cell['runs']:
      (values,) = run['metrics'].values()
      del values[1]
  lab = dataclasses.replace(_LAB, rows=(results.Row('rate=0.5', 'Half'),))
  (axes,) = pages._draw(lab, found).axes
  seeds, mean = axes.lines
  np.testing.assert_allclose(seeds.get_xydata(), [[25, 0], [75, 0]])
  np.testing.assert_allclose(mean.get_xydata(), [[50, 0]])


def test_picture_of_grids_has_the_means_of_all_seeds(swept):
  """A map of the cells 0.5, whose seeds end at 25 and 75 %, 1 and one not run."""
  grid = results.Grid('rates', 'rate={down}{across}', ('0.5', '1', '7'), ('',))
  lab = dataclasses.replace(_LAB, rows=(), grids=(grid,))
  axes, colors = pages._draw(lab, pages.describe(lab, swept)).axes
  (image,) = axes.images
  np.testing.assert_allclose(image.get_array(), [[50], [50], [np.nan]])
  assert [text.get_text() for text in axes.texts] == ['50', '50']
  assert axes.get_title() == 'rates'
  assert colors.get_ylabel().startswith(f'{_LAB.metric}, %, last round')


@pytest.mark.parametrize(
  ('argv', 'words'),
  [
    (['--store=lab/one'], '--store needs --workdir'),
    (['--run=lab/none'], 'RUN=lab/none is no experiment'),
  ],
)
def test_wrong_use_has_one_error(argv, words, monkeypatch, capsys):
  monkeypatch.setattr('sys.argv', ['pages', *argv])
  try:
    assert pages._main() == 1
  except SystemExit as caught:
    assert caught.code == 2
  assert words in capsys.readouterr().err
