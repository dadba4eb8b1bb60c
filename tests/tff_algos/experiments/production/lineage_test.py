"""Chains from served versions to raw files, through parents and rollbacks."""

import dataclasses
import json
import shutil
import types

import pytest

from tests.testing import exportable
from tff_algos.core import errors, sealed_json
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import experiment
from tff_algos.experiments.production import gate_record, lineage
from tff_algos.export import manifest, releases
from tff_algos.training import continuation


def _run(folder, date, parent=None, blessed_against=None):
  folder.mkdir(parents=True)
  content = {
    'round_num': 30,
    'dataset': {
      'version': f'v-{date}',
      'as_of': date,
      'raw_files': {f'{date}.csv': f'sha of {date}'},
    },
    'parent': parent
    and {
      'run': f'../{parent}',
      'round_num': 30,
      'dataset_version': f'v-{parent}',
    },
    'config_hash': 'c1',
    'code_version': 'k1',
    'gate': {'champion_version': blessed_against},
  }
  sealed_json.write(folder / 'lineage.json', content)
  return content


def _release(export, entry, content):
  bundles = {}
  for model in releases.MODELS:
    bundle = bundles[model] = export.parent / entry.dataset_version / model
    (bundle / manifest.EXTRA_FOLDER).mkdir(parents=True)
    manifest.write_manifest(bundle, exportable.PROVENANCE, {'of': content})
  with releases.opened(export) as path:
    path.release(bundles, entry, content)


@pytest.fixture(name='production')
def make_production(tmp_path):
  """Two nights and a rollback to the first."""
  runs, export = tmp_path / 'runs', tmp_path / 'export'
  contents = [
    _run(runs / '2026-11-19', '2026-11-19'),
    _run(runs / '2026-11-20', '2026-11-20', '2026-11-19', 1),
  ]
  for i, content in enumerate(contents):
    version, date = content['dataset']['version'], content['dataset']['as_of']
    entry = releases.Release(
      0, {}, f'../runs/{date}', 30 + i, 'c1', version, True
    )
    _release(export, entry, content)
  with releases.opened(export) as path:
    path.rollback()
  return tmp_path


def test_chain_through_parents(production):
  steps = lineage.chain(production / 'export', 2)
  titles = [title for title, _ in steps]
  assert titles == [
    'version 2',
    f'run {production}/runs/2026-11-20',
    f'run {production}/runs/2026-11-19',
  ]
  version, newer, older = (facts for _, facts in steps)
  assert version['gate'] == 'blessed against version 1'
  assert newer['round'] == '31'
  assert newer['dataset'] == 'v-2026-11-20'
  assert newer['as of'] == '2026-11-20'
  assert newer['SHA-256 of 2026-11-20.csv'] == 'sha of 2026-11-20'
  assert newer['continues'] == '../2026-11-19'
  assert older['SHA-256 of 2026-11-19.csv'] == 'sha of 2026-11-19'
  assert older['continues'] == 'no run'


def test_chain_through_a_rollback_of_the_current_version(production):
  steps = lineage.chain(production / 'export')
  assert [title for title, _ in steps] == [
    'version 3',
    'version 1',
    f'run {production}/runs/2026-11-19',
  ]
  assert steps[0][1] == {'rollback to version': 1}
  assert steps[1][1]['gate'] == 'blessed, without a champion'
  text = lineage.chain_text(steps)
  assert text.startswith('version 3\n  rollback to version: 1\nversion 1\n')
  assert '\n  SHA-256 of 2026-11-19.csv: sha of 2026-11-19' in text


def test_chain_survives_what_was_removed(production):
  """The bundle's own copy tells of its run, and the end says what is missing."""
  for night in ('2026-11-19', '2026-11-20'):
    (production / 'runs' / night / 'lineage.json').unlink()
  _, newer, older = lineage.chain(production / 'export', 2)
  assert newer[1]['SHA-256 of 2026-11-20.csv'] == 'sha of 2026-11-20'
  assert older[1]['lineage'] == 'lineage.json is not there any more'


def test_chain_to_a_run_that_was_done_anew(production):
  """A night removed and started again on other data is another run."""
  older = production / 'runs' / '2026-11-19'
  content = sealed_json.read(older / 'lineage.json', '')
  content['dataset'] |= {'version': 'v-mended'}
  sealed_json.write(older / 'lineage.json', content)
  *_, run = lineage.chain(production / 'export', 2)
  assert run[1]['lineage'] == 'lineage.json is not there any more'


@pytest.mark.parametrize(
  ('key', 'value'),
  [
    # Before parents had the version of their dataset.
    ('parent', {'run': '../2026-11-19', 'round_num': 30}),
    ('dataset', 'v-2026-11-20'),
    ('gate', 'blessed'),
  ],
)
def test_a_lineage_of_other_fields_is_named(production, key, value):
  run = production / 'runs' / '2026-11-20'
  content = sealed_json.read(run / 'lineage.json', '')
  for model in releases.MODELS:
    bundle = production / 'export' / model / '2'
    path = bundle / manifest.EXTRA_FOLDER / releases.LINEAGE_FILE
    path.write_text(json.dumps({**content, key: value}))
  with pytest.raises(errors.DataError, match=f'lineage of {run} cannot be'):
    lineage.chain(production / 'export', 2)


def test_the_copy_of_a_bundle_is_read_first(production):
  (production / 'runs' / '2026-11-19' / 'lineage.json').write_text('{')
  _, run = lineage.chain(production / 'export', 1)
  assert run[1]['SHA-256 of 2026-11-19.csv'] == 'sha of 2026-11-19'


@pytest.mark.parametrize('version', [None, 7])
def test_unknown_version(tmp_path, production, version):
  folder = tmp_path / 'nothing' if version is None else production / 'export'
  with pytest.raises(errors.ExportError, match=f'with version {version}; its'):
    lineage.chain(folder, version)


def test_run_is_described(trained_regressions, tmp_path):
  config, folder = trained_regressions
  with dataset_lib.FederatedDataset.open(folder / 'dataset') as dataset:
    found = lineage.describe(config, folder, dataset, 2)
    assert found['dataset'] == {
      'version': dataset.version,
      'as_of': None,
      'raw_files': dataset.manifest['sources'],
    }
  assert found['round_num'] == 2 and found['gate'] is None
  assert found['parent'] is None
  assert found['config']['seed'] == config.seed
  with pytest.raises(errors.DataError, match='no gate.json: run binaries.gate'):
    lineage.write(config, folder, tmp_path)
  # That of an earlier candidate, before the run was done anew.
  folder = tmp_path / 'run'
  folder.mkdir()
  (folder / 'dataset').symlink_to(trained_regressions[1] / 'dataset')
  old = gate_record.GateRecord(
    True, (), 2, 'old', found['dataset']['version'], {}, {}
  )
  gate_record.write(folder, old)
  with dataset_lib.FederatedDataset.open(folder / 'dataset') as dataset:
    assert lineage.describe(config, folder, dataset, 2)['gate'] is None


def test_releases_of_a_run_that_was_done_anew(trained_regressions, tmp_path):
  """Those of the same folder with another dataset are not the run's."""
  config, source = trained_regressions
  folder, export = tmp_path / 'run', tmp_path / 'export'
  shutil.copytree(source, folder, symlinks=True)
  with dataset_lib.FederatedDataset.open(folder / 'dataset') as dataset:
    entry, _ = lineage.of_release(
      config, folder, export, dataset, 2, gated=True
    )
  _release(export, dataclasses.replace(entry, dataset_version='bad'), {})
  _release(export, entry, {})
  record = gate_record.GateRecord(
    True,
    (),
    2,
    experiment.unpublished_hash(config),
    entry.dataset_version,
    {},
    {},
  )
  gate_record.write(folder, record)
  content = lineage.write(config, folder, export)
  assert content['gate']['blessed']
  assert content['releases'] == [{'export_dir': '../export', 'version': 2}]
  # Written again, when the version was published for another date as well.
  content['dataset']['as_of'] = '2026-11-20'
  sealed_json.write(folder / 'lineage.json', content)
  assert lineage.write(config, folder, export) == content
  shutil.rmtree(export / releases.MODELS[0])
  (_, bad), (_, mended) = (
    lineage.chain(export, version)[1] for version in (1, 2)
  )
  assert bad['lineage'] == 'lineage.json is not there any more'
  assert mended['dataset'] == entry.dataset_version
  assert mended['as of'] == '2026-11-20'


def test_parent_is_relative_to_the_run(tmp_path):
  assert lineage._parent(tmp_path) is None
  parent = continuation.Parent('../a', 3, 'v')
  sealed_json.write(tmp_path / 'parent.json', parent._asdict())
  assert lineage._parent(tmp_path) == {
    'run': '../a',
    'round_num': 3,
    'dataset_version': 'v',
  }


def test_date_is_the_first_of_the_version(tmp_path):
  for date, version in (
    ('2026-11-18', 'older'),
    ('2026-11-19', 'v'),
    ('2026-11-20', 'v'),
  ):
    path = tmp_path / 'as_of' / date
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{version}\n')
  path.with_name('2026-11-17').write_text('')  # Damaged, and of no matter.
  dataset = types.SimpleNamespace(path=tmp_path / 'versions' / 'v', version='v')
  assert lineage._first_date(dataset) == '2026-11-19'
