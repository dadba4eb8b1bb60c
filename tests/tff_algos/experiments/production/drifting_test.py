"""Drift of real dataset versions from those of a trained parent."""

import csv
import dataclasses
import os
import pathlib
import shutil
from unittest import mock

import numpy as np
import pytest

from configs import base
from pipelines import build_dataset
from pipelines.publishing import versions
from tests.testing import csv_files, published, raw_data
from tff_algos.core import cache_folder, errors, sealed_json
from tff_algos.core import config as config_lib
from tff_algos.data import layout
from tff_algos.evaluation import drift
from tff_algos.experiments import (
  datasets,
  experiment,
  resolved_config,
  session,
  tables,
  training,
)
from tff_algos.experiments.production import drifting
from tff_algos.reports.run import drift_report
from tff_algos.runtimes import registry as runtimes
from tff_algos.training import continuation

# The sign of a feature is a client's label, or its opposite.
_SIGNS = {'a': 1, 'b': 1, 'c': 1, 'd': -1, 'e': -1, 'f': -1}


def _config(raw: pathlib.Path, algorithm='ifca', classes=('no', 'yes')):
  model = 'logistic_regression' if classes else 'linear_regression'
  config = base.experiment(algorithm, model=model, source='csv', law='natural')
  config.name = 'drift'
  config.dataset.source.options.update(
    path=str(raw / 'table.csv'),
    label_column='y',
    feature_columns=('x', 'z'),
    client_column='client',
  )
  if classes:
    config.dataset.source.options.classes = classes
  config.dataset.splits.held_out_fraction = 0.2
  config.training.num_rounds = 2
  config.runtime.name = 'debug'
  if algorithm == 'ifca':
    config.algorithm.initialization.mode = 'k-means++'
  config.algorithm.cohort_size = len(_SIGNS)
  config.algorithm.local_training.optimizer.learning_rate = (
    1.0 if classes else 0.1
  )
  config.algorithm.local_training.num_local_epochs = 5
  return experiment.parse(config)


def _write(raw, signs=_SIGNS, seed=0, shift=0.0, classes=True):
  """Writes 24 rows a client, of its sign."""
  generator = np.random.default_rng(seed)
  raw.mkdir(exist_ok=True)
  with (raw / 'table.csv').open('w', newline='') as file:
    writer = csv.writer(file)
    writer.writerow(('client', 'x', 'z', 'y'))
    for client, sign in signs.items():
      for x, z in generator.normal(size=(24, 2)):
        y = sign * x if not classes else ('no', 'yes')[int(sign * x > 0)]
        writer.writerow((client, x + shift, z, y))


@pytest.fixture(scope='module')
def parent(tmp_path_factory):
  """A trained parent, its config and its raw data."""
  root = tmp_path_factory.mktemp('parent')
  _write(root / 'raw')
  config = _config(root / 'raw')
  datasets.build(config.dataset, root / 'run')
  training.train(config, root / 'run')
  assert drifting.measure(config, root / 'run', None) == {}
  return root / 'run', config


def _child(config, folder, **data):
  """Builds the dataset of a day."""
  _write(folder / 'raw', **data)
  config = dataclasses.replace(config, dataset=_config(folder / 'raw').dataset)
  datasets.build(config.dataset, folder)
  return config


def test_without_a_parent_only_the_reference_is_written(parent):
  folder, _ = parent
  assert not (folder / drift.REPORT).exists()
  (place,) = (folder / 'drift_reference').iterdir()
  (version,) = (folder / 'dataset' / 'versions').iterdir()
  assert place.name == version.name
  assert sorted(path.name for path in place.iterdir()) == [
    *('client_statistics.parquet', 'manifest.json', 'statistics.json'),
  ]


def test_the_same_data_do_not_drift(parent, tmp_path):
  folder, config = parent
  (version,) = (folder / 'dataset' / 'versions').iterdir()
  os.symlink(version, tmp_path / 'dataset')
  strict = drift.DriftConfig(
    **{f'max_{name}': 0.0 for name in drift.DriftConfig().thresholds()}
  )
  report = drifting.measure(
    dataclasses.replace(config, drift=strict), tmp_path, folder
  )
  drifting.require_accepted(report, tmp_path)
  assert {*report['measures'].values()} == {0.0}
  assert report['num_clients'] == {'stayed': 6, 'new': 0, 'departed': 0}
  assert (report['parent'], report['parent_round']) == ('run', 2)
  assert report == sealed_json.read(tmp_path / 'drift.json', '')
  before = raw_data.file_bytes(tmp_path)
  drifting.measure(dataclasses.replace(config, drift=strict), tmp_path, folder)
  assert raw_data.file_bytes(tmp_path) == before
  assert not any(b'/tmp' in content for content in before.values())


@pytest.mark.parametrize(
  ('module', 'step'), [(tables, 'write_table'), (sealed_json, 'write')]
)
def test_a_kill_on_the_way_to_the_report_leaves_none(
  parent, tmp_path, monkeypatch, module, step
):
  folder, config = parent
  (version,) = (folder / 'dataset' / 'versions').iterdir()
  os.symlink(version, tmp_path / 'dataset')
  drifting.measure(config, tmp_path, folder)
  assert drift_report.read(tmp_path) is not None
  monkeypatch.setattr(module, step, mock.Mock(side_effect=SystemExit))
  with pytest.raises(SystemExit):
    drifting.measure(config, tmp_path, folder)
  assert drift_report.read(tmp_path) is None


def test_a_folder_in_place_of_the_table_costs_no_report(parent, tmp_path):
  folder, config = parent
  (version,) = (folder / 'dataset' / 'versions').iterdir()
  os.symlink(version, tmp_path / 'dataset')
  (tmp_path / drift.REPORT).write_text('{}')
  (tmp_path / drift.CLIENTS).mkdir()
  with pytest.raises(errors.DataError, match='where a file belongs'):
    drifting.measure(config, tmp_path, folder)
  assert (tmp_path / drift.REPORT).read_text() == '{}'


def test_the_parent_may_have_run_on_another_machine_or_version(
  parent, tmp_path
):
  folder, config = parent
  shutil.copytree(folder, tmp_path / 'parent', symlinks=True)
  runtime = runtimes.RuntimeConfig('vectorized', devices=('GPU:7',))
  path = tmp_path / 'parent' / 'config.json'
  content = sealed_json.read(path, '')
  content['config']['runtime'] = config_lib.to_dict(runtime) | {'removed': 1}
  sealed_json.write(path, content)
  with pytest.raises(
    errors.ConfigError, match="config.json: .*'removed'.*train it anew"
  ):
    resolved_config.read(tmp_path / 'parent')
  (tmp_path / 'child').mkdir()
  (version,) = (folder / 'dataset' / 'versions').iterdir()
  os.symlink(version, tmp_path / 'child' / 'dataset')
  report = drifting.measure(config, tmp_path / 'child', tmp_path / 'parent')
  assert {*report['measures'].values()} == {0.0}


def test_clients_that_change_their_cluster_and_new_ones_far_from_all(
  parent, tmp_path
):
  folder, config = parent
  signs = _SIGNS | {'b': -1, 'near': 1, 'f': -1}
  del signs['e']
  config = _child(config, tmp_path, signs=signs)
  with (tmp_path / 'raw' / 'table.csv').open('a') as file:
    # Both clusters err: labels of both signs at one place.
    file.writelines(
      f'far,{x},0,{y}\n' for x in range(12) for y in ('yes', 'no')
    )
  datasets.build(config.dataset, tmp_path)
  report = drifting.measure(config, tmp_path, folder)
  rows = {
    row['client_id']: row for row in csv_files.read(tmp_path / drift.CLIENTS)
  }
  changed = {
    client_id
    for client_id, row in rows.items()
    if row['status'] == 'stayed'
    and row['cluster_id'] != row['parent_cluster_id']
  }
  assert changed == {'b'}
  assert report['measures']['changed_clusters'] == 1 / 5
  assert (rows['near']['is_far'], rows['far']['is_far']) == ('0', '1')
  assert report['measures']['far_clients'] == 1 / 2
  assert report['num_clients'] == {'stayed': 5, 'new': 2, 'departed': 1}
  assert rows['e']['cluster_id'] == '' and rows['e']['parent_cluster_id']
  # Losses by the models themselves, on the examples themselves.
  with session.open_session(config, folder) as opened:
    _, server_state = opened.restore()
    weights = opened.algorithm.cluster_weights(server_state)
    with experiment.open_dataset(tmp_path) as dataset:
      for client_id in ('b', 'far'):
        x, y, _ = dataset.examples(client_id, 'train')
        losses = []
        for cluster_id in range(2):
          one = {
            key: np.asarray(value)[cluster_id] for key, value in weights.items()
          }
          logits = x @ one['kernel'] + one['bias']
          log_sums = np.log(np.exp(logits).sum(axis=1))
          losses.append(np.mean(log_sums - logits[np.arange(len(y)), y]))
        assert float(rows[client_id]['loss']) == pytest.approx(
          min(losses), rel=1e-4
        )
        assert int(rows[client_id]['cluster_id']) == np.argmin(losses)


def test_a_planted_shift_fails_the_run_after_its_report(parent, tmp_path):
  folder, config = parent
  config = _child(config, tmp_path, shift=3.0)
  config = dataclasses.replace(
    config, drift=drift.DriftConfig(max_feature_shift=0.5, max_label_shift=0.1)
  )
  report = drifting.measure(config, tmp_path, folder)
  with pytest.raises(
    errors.NotApprovedError,
    match=r'from those of run: feature_shift is 1\.\d+, above '
    r'config\.drift\.max_feature_shift=0\.5\. Look at .*drift\.json; then mend '
    'the raw data and build the dataset anew, or raise the threshold',
  ):
    drifting.require_accepted(report, tmp_path)
  assert report == sealed_json.read(tmp_path / drift.REPORT, '')
  assert report['most_shifted_features'][0]['feature'] == 0
  assert report['measures']['label_shift'] < 0.1
  assert report['measures']['loss_increase'] > 1
  assert len([*(tmp_path / 'drift_reference').iterdir()]) == 1


def test_after_retention_the_reference_of_the_parent_serves(parent, tmp_path):
  folder, config = parent
  run = tmp_path / 'parent'
  shutil.copytree(folder, run)
  day = tmp_path / 'day'
  day.mkdir()
  config = _child(config, day, shift=0.1)
  expected = drifting.measure(config, day, run)
  shutil.rmtree(run / 'dataset')
  found = drifting.measure(config, day, run)
  unknown = {'changed_clusters', 'far_clients', 'loss_increase'}
  assert found['missing'].keys() == unknown
  for name, value in expected['measures'].items():
    assert found['measures'][name] == (None if name in unknown else value)
  assert found['parent_round'] is None
  assert 'was removed' in drifting.summarize(found)


def test_a_parent_with_its_dataset_needs_no_reference(parent, tmp_path):
  folder, config = parent
  run = tmp_path / 'parent'
  shutil.copytree(folder, run)
  (version,) = (run / 'dataset' / 'versions').iterdir()
  (run / 'drift_reference' / version.name / 'statistics.json').write_text('{')
  (version / 'statistics.json').unlink()
  day = tmp_path / 'day'
  day.mkdir()
  config = _child(config, day)
  report = drifting.measure(config, day, run)
  assert report['measures']['client_label_shift'] == 0


def test_a_published_dataset_without_statistics_is_named_by_its_address(
  parent, tmp_path, monkeypatch
):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  folder, config = parent
  run = tmp_path / 'published'
  shutil.copytree(folder / 'dataset', run / 'dataset')
  (path,) = run.rglob(layout.STATISTICS)
  path.unlink()
  published.publish(run, 'memory://bucket/drift')
  layout.write_address(tmp_path / 'dataset', 'memory://bucket/drift')
  with pytest.raises(
    errors.DataError,
    match='^the dataset at memory://bucket/drift has no sound .* with '
    'binaries.card --workdir=memory://bucket/drift$',
  ):
    drifting.measure(config, tmp_path, None)


def test_another_version_of_the_day_replaces_the_reference(parent, tmp_path):
  _, config = parent
  config = _child(config, tmp_path)
  drifting.measure(config, tmp_path, None)
  (first,) = (tmp_path / 'drift_reference').iterdir()
  (tmp_path / 'drift_reference' / '.writing-killed').mkdir()
  (tmp_path / 'drift_reference' / '.DS_Store').touch()
  _write(tmp_path / 'raw', seed=1)
  datasets.build(config.dataset, tmp_path)
  drifting.measure(config, tmp_path, None)
  file, second = sorted((tmp_path / 'drift_reference').iterdir())
  assert file.name == '.DS_Store' and first.name != second.name


def test_the_parent_of_the_config_is_the_parent(parent, tmp_path):
  folder, config = parent
  config = _child(config, tmp_path, shift=3.0)
  config = dataclasses.replace(
    config,
    continuation=continuation.ContinuationConfig(parent=str(folder)),
    drift=drift.DriftConfig(max_feature_shift=0.5),
  )
  for unset in ('', None):
    (exceeded,) = drifting.measure(config, tmp_path, unset)['exceeded']
    assert exceeded.startswith('feature_shift is 1.')


def test_the_reference_is_of_the_version_that_trained_the_parent(
  parent, tmp_path
):
  """The parent's data were looked at, mended and built again."""
  folder, config = parent
  run, day = tmp_path / 'parent', tmp_path / 'day'
  shutil.copytree(folder, run)
  day.mkdir()
  config = _child(config, day, shift=0.1)
  drifting.measure(config, day, None)
  shutil.rmtree(run / 'drift_reference')
  shutil.copytree(day / 'drift_reference', run / 'drift_reference')
  (version,) = (run / 'dataset' / 'versions').iterdir()
  report = drifting.measure(config, day, run)
  assert report['parent_dataset_version'] == version.name
  assert report['measures']['feature_shift'] > 0
  shutil.rmtree(run / 'dataset')
  with pytest.raises(errors.DataError, match='dataset'):
    drifting.measure(config, day, run)
  # The folder of the parent has another version than that of its models.
  shutil.copytree(day / 'dataset', run / 'dataset')
  with pytest.raises(errors.CheckpointError, match='dataset_version'):
    drifting.measure(config, day, run)


def test_an_untrained_parent_is_refused(parent, tmp_path):
  _, config = parent
  run, day = tmp_path / 'parent', tmp_path / 'day'
  for folder in (run, day):
    folder.mkdir()
    config = _child(config, folder)
  with pytest.raises(errors.CheckpointError, match='run binaries.train first'):
    drifting.measure(config, day, run)


def test_regressions(tmp_path):
  run, day = tmp_path / 'parent', tmp_path / 'day'
  configs = {}
  for folder, signs in ((run, _SIGNS), (day, _SIGNS | {'a': 9})):
    folder.mkdir()
    _write(folder / 'raw', signs, classes=False)
    configs[folder] = _config(folder / 'raw', 'fed_avg', classes=None)
    datasets.build(configs[folder].dataset, folder)
  training.train(configs[run], run)
  report = drifting.measure(configs[day], day, run)
  assert report['measures']['feature_shift'] == 0
  assert report['measures']['label_shift'] > 0
  assert report['measures']['changed_clusters'] == 0  # There is one model.
  assert report['measures']['loss_increase'] > 1
  shifted = [
    row['client_id']
    for row in csv_files.read(day / drift.CLIENTS)
    if float(row['label_shift'])
  ]
  assert shifted == ['a']


def test_versions_side_by_side_as_in_production(parent, tmp_path):
  """Runs link to versions of one dataset; retention removes the first."""
  folder, config = parent
  raw = tmp_path / 'raw'
  _write(raw)
  config = dataclasses.replace(config, dataset=_config(raw).dataset)
  runs = []
  for seed in (0, 1):
    _write(raw, seed=seed)
    built = build_dataset.build(
      config.dataset,
      tmp_path / 'dataset',
      publication=versions.Publication(as_of=f'2026-11-2{seed}'),
    )
    runs.append(tmp_path / 'runs' / f'2026-11-2{seed}')
    runs[-1].mkdir(parents=True)
    os.symlink(
      f'../../dataset/versions/{built.version}',
      runs[-1] / 'dataset',
    )
  drifting.measure(config, runs[0], None)
  training.train(config, runs[0])
  report = drifting.measure(config, runs[1], runs[0])
  assert report['parent'] == '2026-11-20'
  assert None not in report['measures'].values()
