"""Tables and page of runs that are there, and questions to a sweep."""

import json
import math

import pytest

from configs.fed_soft import synthetic
from tests.testing import csv_files, fake_search, fake_sweep, fake_workdir
from tff_algos.core import errors, folder_lock, sealed_json
from tff_algos.data import layout, schema
from tff_algos.evaluation import round_time
from tff_algos.experiments.sweeps import comparison, grid
from tff_algos.reports.sweep import cell_time_curves_plot, sweep_page
from tff_algos.reports.sweep import plan as plan_lib
from tff_algos.reports.sweep import target as target_lib

_AXES = (plan_lib.Axis('algorithm.weight', 'weight', (0.1, 1.0)),)
_KEY = 'algorithm.num_clusters'
_TEST = 'participating/test/personalized/accuracy'


def test_a_sweep_gets_its_tables_and_its_page(tmp_path):
  levels = {(0.1,): (0.2, 0.4), (1.0,): (0.3,)}
  fake_sweep.write(tmp_path, levels, _AXES)
  text = comparison.compare(tmp_path)
  assert 'weight=0.1  (2 seeds; clusters found (95 % interval): 2 of 2' in text
  runs = csv_files.read(tmp_path / 'sweep.csv')
  assert [float(row[_TEST]) for row in runs] == pytest.approx([0.2, 0.4, 0.3])
  cells = csv_files.read(tmp_path / 'sweep_summary.csv')
  assert [row['num_runs'] for row in cells] == ['2', '1']
  std = 0.2 / math.sqrt(2)
  assert float(cells[0][f'{_TEST} std']) == pytest.approx(std)
  assert (tmp_path / 'report' / 'index.html').is_file()


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      comparison.Options(prefixes=('participating/', 'partcipating/test')),
      '--metrics=partcipating/test: .* they begin with round, .*held_out',
    ),
    (
      comparison.Options(target=target_lib.Target('test/accurac', 0.5)),
      r'--target=test/accurac=\.\.\.: no run .* column of .*metrics.csv',
    ),
  ],
)
def test_a_metric_that_no_run_has_is_refused_at_the_end(
  tmp_path, options, message
):
  fake_sweep.write(tmp_path, {(0.1,): (0.2,)}, _AXES)
  with pytest.raises(errors.DataError, match=message):
    comparison.compare(tmp_path, options)
  assert len(csv_files.read(tmp_path / 'sweep.csv')) == 1
  assert (tmp_path / 'report' / 'index.html').is_file()


def test_seeds_of_different_lengths_are_told(tmp_path):
  runs = []
  for seed, num_rounds in enumerate((2, 8)):
    fake_sweep.write_run(tmp_path / f'seed_{seed}', num_rounds=num_rounds)
    runs.append(plan_lib.PlannedRun(f'seed_{seed}', (), seed))
  fake_sweep.write_plan(tmp_path, plan_lib.Plan('x', (), tuple(runs)))
  text = comparison.compare(tmp_path)
  assert 'the runs: the means are over runs whose last rounds are 2, 8,' in text
  fake_sweep.write_plan(tmp_path, plan_lib.Plan('x', (), tuple(runs[:1])))
  assert 'last rounds' not in comparison.compare(tmp_path)


@pytest.mark.parametrize(
  ('key', 'is_told'),
  [('algorithm.weight', True), ('training.num_rounds', False)],
)
def test_cells_of_different_lengths_are_told(tmp_path, key, is_told):
  """A sweep of 20 rounds was extended to 40, and killed."""
  levels = {(0.1,): (0.2,), (0.2,): (0.3,), (0.3,): (0.3,)}
  axes = (plan_lib.Axis(key, key.rpartition('.')[2], (0.1, 0.2, 0.3)),)
  fake_sweep.write(tmp_path, levels, axes)
  paths = sorted(tmp_path.glob('*/seed_0/config.json'))
  for path, num_rounds in zip(paths, (40, 20, 20), strict=True):
    config = {'training': {'num_rounds': num_rounds}}
    sealed_json.write(path, {'config': config})
  text = comparison.compare(tmp_path)
  told = (
    'config.training.num_rounds differs: 20 in weight=0.2, weight=0.3; 40 in '
    'weight=0.1.'
  )
  assert (told in text) == is_told


def test_seeds_of_different_configs_are_told(tmp_path):
  fake_sweep.write(tmp_path, {(0.1,): (0.2, 0.4)}, _AXES)
  for seed, path in enumerate(sorted(tmp_path.glob('*/seed_*/config.json'))):
    config = {
      'seed': seed,
      'dataset': {'seed': seed},
      'runtime': {'name': str(seed)},
      'algorithm': {'num_steps': 7},
    }
    sealed_json.write(path, {'config': config})
  assert 'different configs' not in comparison.compare(tmp_path)
  config['algorithm']['num_steps'] = 9
  sealed_json.write(path, {'config': config})
  text = comparison.compare(tmp_path)
  assert (
    'weight=0.1: the means are over runs of different configs, which differ in '
    'algorithm.num_steps.'
  ) in text


def _set_raw_data(run, seed, version, sources, source='table'):
  """Gives a run a dataset of raw data with these checksums."""
  dataset = {'seed': seed, 'source': {'name': source}}
  config = {'seed': seed, 'dataset': dataset}
  sealed_json.write(run / 'config.json', {'config': config})
  fake_workdir.change_summary(run, dataset_version=version)
  folder = layout.version_folder(run / 'dataset', version)
  folder.mkdir(parents=True)
  manifest = {
    'schema_version': schema.SCHEMA_VERSION,
    'version': version,
    'sources': sources,
  }
  manifest['checksum'] = sealed_json.checksum(manifest)
  (folder / layout.MANIFEST).write_text(json.dumps(manifest))


def test_runs_on_other_raw_data_are_told(tmp_path):
  """Of another seed of the dataset, whose version has another name anyway."""
  levels = {(0.1,): (0.2, 0.4), (1.0,): (0.3, 0.3)}
  fake_sweep.write(tmp_path, levels, _AXES)
  runs = sorted(tmp_path.glob('*/seed_*'))
  for run in runs[:3]:
    seed = int(run.name[-1])
    _set_raw_data(run, seed, f'v{seed}', {'a.csv': '1'})
  assert 'raw data' not in comparison.compare(tmp_path)
  _set_raw_data(runs[3], 1, 'w1', {'a.csv': '2'})
  assert (
    'weight=0.1/seed_0 was trained on other raw data than weight=1/seed_1: files '
    'changed, while config.dataset stayed.'
  ) in comparison.compare(tmp_path)


def test_generated_data_are_others_by_their_seed(tmp_path):
  fake_sweep.write(tmp_path, {(0.1,): (0.2, 0.4)}, _AXES)
  for seed, run in enumerate(sorted(tmp_path.glob('*/seed_*'))):
    _set_raw_data(run, seed, f'v{seed}', {'waves': str(seed)}, source='waves')
  assert 'raw data' not in comparison.compare(tmp_path)


def test_a_run_that_was_made_twice_is_told(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name, seed in (('seed_0', 7), ('seed_1', 7), ('seed_2', 8), ('x', 9)):
    path = tmp_path / 'runs' / name
    fake_sweep.write_run(path)
    sealed_json.write(path / 'config.json', {'config': {'seed': seed}})
  plan = comparison.plan_of_folders(['runs/*'], tmp_path / 'compared')
  assert [run.seed for run in plan.runs] == [7, 7, 8, 9]
  fake_sweep.write_plan(tmp_path / 'compared', plan)
  text = comparison.compare(tmp_path / 'compared')
  assert 'seed_0, seed_1 have one config and one seed' in text
  assert text.count('one config') == 1


def test_runs_of_which_an_earlier_round_was_evaluated_are_told(tmp_path):
  fake_sweep.write(tmp_path, {(0.1,): (0.2,), (0.3,): (0.2,)}, _AXES)
  assert 'evaluated last' not in comparison.compare(tmp_path)
  (first, _) = sorted(tmp_path.glob('*/seed_0'))
  fake_workdir.change_summary(first, {'round': 1})
  text = comparison.compare(tmp_path)
  assert (
    f'{first.relative_to(tmp_path)}: its metrics are those of round 1, which '
    'was evaluated last, and it has 2 rounds.'
  ) in text
  assert text.count('evaluated last') == 1


def test_runs_that_are_not_evaluated_are_told(tmp_path):
  plan = fake_sweep.write(tmp_path, {(0.1,): (0.2, 0.4, 0.3)}, _AXES)
  assert 'left out' not in comparison.compare(tmp_path)
  folders = [run.folder for run in plan.runs]
  for folder in folders[1:]:
    (tmp_path / folder / 'evaluation' / 'summary.json').unlink()
  runs = (*plan.runs[:2], plan.runs[2]._replace(error='too few digits'))
  fake_sweep.write_plan(tmp_path, plan._replace(runs=runs))
  assert (
    f'1 of 3 runs are left out, as they are not evaluated: {folders[1]}'
  ) in comparison.compare(tmp_path).splitlines()


def test_runs_that_cannot_be_compared_leave_the_plan_of_before(tmp_path):
  fake_sweep.write_run(tmp_path / 'evaluated')
  (tmp_path / 'trained').mkdir()
  before, after = (
    comparison.plan_of_folders([f'{tmp_path}/{name}'], tmp_path / 'compared')
    for name in ('evaluated', 'trained')
  )
  comparison.compare(tmp_path / 'compared', plan=before)
  with pytest.raises(
    errors.DataError, match='is evaluated, such as .*; run binaries.evaluate'
  ):
    comparison.compare(tmp_path / 'compared', plan=after)
  assert plan_lib.read(tmp_path / 'compared') == before


def test_one_comparison_at_a_time_writes_the_tables(tmp_path, monkeypatch):
  fake_sweep.write(tmp_path, {(0.1,): (0.2,)}, _AXES)
  monkeypatch.setattr(comparison, '_PATIENCE_SECONDS', 0.0)
  with (
    folder_lock.exclusive(tmp_path, ''),
    pytest.raises(errors.WorkdirBusyError, match='another comparison .*Wait'),
  ):
    comparison.compare(tmp_path)
  assert not (tmp_path / 'sweep.csv').exists()


def test_what_is_chosen_is_printed_and_on_the_page(tmp_path):
  levels = {(0.1,): (0.2, 0.4), (1.0,): (0.3,)}
  fake_sweep.write(tmp_path, levels, _AXES)
  question = plan_lib.Question('algorithm.weight')
  text = comparison.compare(tmp_path, comparison.Options(question=question))
  page = (tmp_path / 'report' / 'index.html').read_text()
  told = 'algorithm.weight cannot be selected'
  assert text.splitlines()[-1].startswith(told)
  assert f'<p>{told}' in page
  comparison.compare(tmp_path)
  assert 'Selected' not in (tmp_path / 'report' / 'index.html').read_text()


def test_the_clock_of_the_picture_of_time_can_be_set(tmp_path, monkeypatch):
  fake_sweep.write(tmp_path, {(0.1,): (0.2,), (1.0,): (0.3,)}, _AXES)
  clock, seen = round_time.Clock(rates=(5e5,)), []
  look = cell_time_curves_plot.PICTURE._replace(
    draw=lambda sweep: seen.extend(run.clock for run in sweep.cells[0].runs)
  )
  monkeypatch.setattr(sweep_page, 'PICTURES', (look,))
  comparison.compare(tmp_path, comparison.Options(clock=clock))
  assert seen == [clock]


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    (comparison.Options(prefixes=('cost/',)), '--metrics and --clock are of'),
    (comparison.Options(clock=round_time.Clock(rates=(5e5,))), '--metrics and'),
    (comparison.Options(question=plan_lib.Question('trial')), '--choose out'),
  ],
)
def test_options_of_grids_are_refused_for_a_search(tmp_path, options, words):
  fake_search.read(tmp_path, {'weight': (0.1,)}, (0.2,))
  with pytest.raises(errors.ConfigError, match=words):
    comparison.compare(tmp_path, options)
  assert not (tmp_path / 'sweep.csv').exists()


def test_the_tables_of_a_search_have_its_target(tmp_path):
  fake_search.read(tmp_path, {'weight': (0.1,)}, (0.2,))
  target = target_lib.Target(_TEST, 0.1)
  comparison.compare(tmp_path, comparison.Options(target=target))
  (row,) = csv_files.read(tmp_path / 'sweep.csv')
  assert float(row[target_lib.ROUNDS]) == pytest.approx(1)
  (row,) = csv_files.read(tmp_path / 'sweep_summary.csv')
  assert float(row[f'{target_lib.ROUNDS} mean']) == pytest.approx(1)


def test_seeds_side_by_side_are_one_cell(tmp_path, monkeypatch):
  for name in ('fed_soft/seed_0', 'fed_soft/seed_3', 'ifca', 'no_run.txt'):
    (tmp_path / 'runs' / name).mkdir(parents=True)
  monkeypatch.chdir(tmp_path)
  path = tmp_path / 'runs/fed_soft/seed_3/config.json'
  sealed_json.write(path, {'config': {'seed': 7}})
  plan = comparison.plan_of_folders(
    ['runs/fed_soft/seed_*', 'runs/if*', 'runs/*/seed_0'], 'runs/compared'
  )
  assert plan.axes[0].values == ('fed_soft', 'ifca')
  assert [(run.folder, run.values, run.seed) for run in plan.runs] == [
    ('../fed_soft/seed_0', ('fed_soft',), 0),
    ('../fed_soft/seed_3', ('fed_soft',), 7),
    ('../ifca', ('ifca',), 0),
  ]


def test_absolute_patterns_and_files_between(tmp_path):
  for name in ('seed_0', 'seed_1'):
    (tmp_path / name).mkdir()
  (tmp_path / 'seed_2').write_text('a file')
  plan = comparison.plan_of_folders([f'{tmp_path}/seed_*'], tmp_path / 'new')
  assert [run.folder for run in plan.runs] == ['../seed_0', '../seed_1']


def test_a_pattern_without_a_folder_is_refused(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.DataError, match=r'--runs=runs/\* matches no'):
    comparison.plan_of_folders(['runs/*'], 'compared')


def test_a_comparison_is_none_of_its_runs(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'runs' / 'compared').mkdir(parents=True)
  with pytest.raises(errors.DataError, match='besides --workdir=runs/compared'):
    comparison.plan_of_folders(['runs/*'], 'runs/compared')
  (tmp_path / 'runs' / 'ifca').mkdir()
  plan = comparison.plan_of_folders(['runs/*'], tmp_path / 'runs/compared')
  assert [run.folder for run in plan.runs] == ['../ifca']


def _runs(validation_ratio=0.0, num_unseen_clients=0):
  base = synthetic.get_config('smoke').to_dict()
  base['dataset']['splits']['validation_ratio'] = validation_ratio
  base['dataset']['partition']['num_unseen_clients'] = num_unseen_clients
  return grid.expand({'smoke': base}, [f'{_KEY}=2,3'], 1)


def test_what_can_be_answered_passes():
  comparison.check(_runs(), None)
  comparison.check(_runs(validation_ratio=0.2), plan_lib.Question(_KEY))
  comparison.check(
    _runs(num_unseen_clients=2), plan_lib.Question(_KEY, plan_lib.UNSEEN)
  )
  runs = _runs()
  for config in runs.configs:
    config.dataset.partition.options['unseen_fraction'] = 0.1
  comparison.check(runs, plan_lib.Question(_KEY, plan_lib.UNSEEN))


@pytest.mark.parametrize(
  ('options', 'question', 'text'),
  [
    (
      {'num_unseen_clients': 2},
      plan_lib.Question(_KEY),
      '--choose_by=validation needs datasets with a validation part .*; that '
      'of num_clusters=2/seed_0 has none',
    ),
    (
      {'validation_ratio': 0.2},
      plan_lib.Question(_KEY, plan_lib.UNSEEN),
      '--choose_by=unseen needs datasets with unseen clients',
    ),
    (
      {'validation_ratio': 0.2},
      plan_lib.Question('num_clusters'),
      f'--choose=num_clusters must be what the runs differ by, which is {_KEY}',
    ),
  ],
)
def test_what_cannot_be_answered_is_refused(options, question, text):
  with pytest.raises(errors.UserError, match=text):
    comparison.check(_runs(**options), question)


def test_every_dataset_of_a_sweep_is_looked_at():
  base = synthetic.get_config('smoke').to_dict()
  axes = [f'{_KEY}=2,3', 'dataset.splits.validation_ratio=0.2,0.0']
  runs = grid.expand({'smoke': base}, axes, 1)
  with pytest.raises(
    errors.ConfigError, match='num_clusters=2,validation_ratio=0/seed_0 has'
  ):
    comparison.check(runs, plan_lib.Question(_KEY))
