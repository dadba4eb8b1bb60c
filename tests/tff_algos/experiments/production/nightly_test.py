"""Nights of a tiny production: what each continues, releases and refuses."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
from typing import Any, NamedTuple

import pytest

from pipelines import options as dataset_options
from tests.testing import nights, raw_data, raw_sources, unrendered
from tff_algos.core import cache_folder, errors
from tff_algos.experiments.production import (
  gating,
  lineage,
  nightly,
  releasing,
)
from tff_algos.export import releases
from tff_algos.stores import objects as objects_lib
from tff_algos.training import checkpoint, continuation, workdir


class Production(NamedTuple):
  """A production with its raw files."""

  raw: pathlib.Path
  folder: pathlib.Path
  results: tuple[dict[str, Any], ...] = ()

  def run(self, date, until=nightly.RELEASE, **sections):
    config = nights.parse(self.raw, **sections)
    return nightly.run(config, self.folder, date, nightly.Options(until))

  def run_folder(self, date) -> pathlib.Path:
    return self.folder / 'runs' / date

  @property
  def history(self):
    return releases.read_history(self.folder / 'export')


@pytest.fixture(autouse=True, scope='module')
def cheap():
  """Draws no pictures and loads no bundle in a process of its own."""
  with unrendered.blank_pictures(), pytest.MonkeyPatch.context() as patched:
    patched.setattr(gating, '_check_plainly', _check_time_alone)
    yield


def _check_time_alone(found, dataset, config):
  del found, dataset
  is_in_time = config.max_batch_seconds > 0.5
  return {'in time': is_in_time}, [] if is_in_time else ['it takes too long']


@pytest.fixture(name='made', scope='module')
def make_two_nights(cheap, tmp_path_factory):
  """Two nights; not to change."""
  folder = tmp_path_factory.mktemp('nights')
  made = Production(folder / 'raw', folder / 'production')
  nights.write_day(made.raw, nights.FIRST, 'abyz')
  first = made.run(nights.FIRST)
  nights.write_day(made.raw, nights.FIRST, 'byz')  # Client a leaves.
  nights.write_day(made.raw, nights.SECOND, 'bcdyz')
  return made._replace(results=(first, made.run(nights.SECOND)))


def _copy(made: Production, folder: pathlib.Path) -> Production:
  """Returns a copy of two nights, with the raw files of the third."""
  for path in (made.raw, made.folder):
    shutil.copytree(path, folder / path.name, symlinks=True)
  copied = Production(folder / 'raw', folder / 'production')
  nights.write_day(copied.raw, nights.THIRD, 'abcdyz')
  return copied


@pytest.fixture(name='production')
def make_production(made, tmp_path):
  return _copy(made, tmp_path)


@pytest.fixture(name='third', scope='module')
def make_third(made, tmp_path_factory):
  """Two nights and the third, which is trained and no more; not to change."""
  copied = _copy(made, tmp_path_factory.mktemp('third'))
  copied.run(nights.THIRD, nightly.TRAIN)
  return copied


@pytest.fixture(name='trained')
def make_trained(third, tmp_path):
  """A copy of the three; the raw files, a part of the config, stay in place."""
  folder = shutil.copytree(
    third.folder, tmp_path / third.folder.name, symlinks=True
  )
  before = raw_data.file_bytes(third.raw)
  yield third._replace(folder=folder)
  for name in raw_data.file_bytes(third.raw):
    (third.raw / name).unlink()
  for name, content in before.items():
    (third.raw / name).write_bytes(content)


def _version_of(folder: pathlib.Path) -> str:
  return pathlib.Path(os.readlink(folder / 'dataset')).name


def _rounds(folder: pathlib.Path) -> list[int]:
  manager = checkpoint.CheckpointManager(
    folder / checkpoint.FOLDER, {}, read_only=True
  )
  return manager.rounds()


def test_the_first_night_trains_anew(made):
  folder = made.run_folder(nights.FIRST)
  assert made.results[0] == {
    'status': 'released',
    'as_of': nights.FIRST,
    'run': f'runs/{nights.FIRST}',
    'parent': None,
    'dataset_version': _version_of(folder),
    'released_version': 1,
    'current_version': 1,
  }
  assert continuation.read_parent(folder) is None
  assert _rounds(folder)[-1] == nights.NUM_ROUNDS
  assert not (folder / 'drift.json').exists()


def test_the_second_night_continues_the_first(made):
  first, second = (
    made.run_folder(date) for date in (nights.FIRST, nights.SECOND)
  )
  assert made.results[1] == {
    'status': 'released',
    'as_of': nights.SECOND,
    'run': f'runs/{nights.SECOND}',
    'parent': f'runs/{nights.FIRST}',
    'dataset_version': _version_of(second),
    'released_version': 2,
    'current_version': 2,
  }
  assert _version_of(second) != _version_of(first)
  assert continuation.read_parent(second) == continuation.Parent(
    f'../{nights.FIRST}', 2, _version_of(first), stayed=3, joined=2, left=1
  )
  assert _rounds(second)[-1] == 2 * nights.NUM_ROUNDS
  drifted = json.loads((second / 'drift.json').read_text())
  assert drifted['parent'] == nights.FIRST
  gated = json.loads((second / 'gate.json').read_text())
  assert gated['blessed'] and gated['champion_version'] == 1
  chain = lineage.chain(made.folder / 'export')
  assert [os.path.basename(title) for title, _ in chain] == [
    'version 2',
    nights.SECOND,
    nights.FIRST,
  ]
  assert [entry.run for entry in made.history] == [
    f'../runs/{date}' for date in (nights.FIRST, nights.SECOND)
  ]


@pytest.mark.slow
def test_a_finished_night_changes_no_file(made):
  before = raw_data.file_bytes(made.folder)
  assert made.run(nights.SECOND) == made.results[1]
  # Released before the second night: that is no backfill.
  assert made.run(nights.FIRST) == {**made.results[0], 'current_version': 2}
  assert raw_data.file_bytes(made.folder) == before


def test_no_new_data(production):
  (production.raw / f'{nights.THIRD}.csv').unlink()
  for _ in range(2):
    result = production.run(nights.THIRD)
    assert result == {
      'status': 'no_new_data',
      'as_of': nights.THIRD,
      'run': None,
      'parent': f'runs/{nights.SECOND}',
      'dataset_version': _version_of(production.run_folder(nights.SECOND)),
      'released_version': None,
      'current_version': 2,
    }
    assert not production.run_folder(nights.THIRD).exists()


@pytest.mark.parametrize('date', [nights.SECOND, nights.THIRD])
def test_a_folder_in_place_of_a_link_is_named(production, date):
  """As a copy by `cp -rL` has it, of the night or of its parent."""
  link = production.run_folder(nights.SECOND) / 'dataset'
  version = link.resolve()
  link.unlink()
  shutil.copytree(version, link)
  with pytest.raises(errors.DataError, match=f'{link} is missing, or no link'):
    production.run(date)


def test_a_copy_without_links_is_named(production):
  links = [
    production.run_folder(date) / 'dataset'
    for date in (nights.FIRST, nights.SECOND)
  ]
  for link in links:
    link.unlink()
  with pytest.raises(errors.DataError, match=f'{links[1]} is missing, or no'):
    production.run(nights.SECOND)
  assert not os.path.lexists(links[1])


def test_a_backfill_is_not_released(production):
  result = production.run(nights.BETWEEN)
  assert result['status'] == 'backfilled'
  assert result['parent'] == f'runs/{nights.FIRST}'
  assert result['released_version'] is None
  assert len(production.history) == 2
  assert _rounds(production.run_folder(nights.BETWEEN))[-1] == 4
  current = (production.folder / 'dataset' / 'CURRENT').read_text().strip()
  assert current == _version_of(production.run_folder(nights.SECOND))
  # It is no parent either.
  later = production.run(nights.THIRD, nightly.DATASET)
  assert later['parent'] == f'runs/{nights.SECOND}'


def test_an_older_night_never_replaces_newer_models(trained):
  """Neither trained for longer nor removed and done anew."""
  longer = {'num_rounds': nights.NUM_ROUNDS + 1}
  assert trained.run(nights.FIRST, training=longer)['status'] == 'backfilled'
  trained.run(nights.THIRD)
  shutil.rmtree(trained.run_folder(nights.SECOND))
  nights.write_day(trained.raw, nights.SECOND, 'bcdyz', turns_labels=True)
  result = trained.run(nights.SECOND)
  assert (result['status'], result['current_version']) == ('backfilled', 3)
  assert len(trained.history) == 3


def test_what_affects_no_result_releases_nothing_anew(made, production):
  production = production._replace(raw=made.raw)  # A part of the config.
  before = production.history
  for sections in (
    {'tracking': {'experiment': 'other'}},
    {'runtime': {'gpu_memory_limit_mib': 1000}},
    {'gate': {'max_fall': 0.5}},
  ):
    result = production.run(nights.SECOND, **sections)
    assert (result['status'], result['released_version']) == ('released', 2)
  assert production.history == before


def test_after_a_rollback_another_version_is_served(made, production):
  production = production._replace(raw=made.raw)
  with releases.opened(production.folder / 'export') as path:
    path.rollback()
  result = production.run(nights.SECOND)
  assert (result['released_version'], result['current_version']) == (2, 3)


def _interrupt_at(monkeypatch, name: str, place: str):
  """Raises KeyboardInterrupt where `os.<name>` is to make a path."""
  original = getattr(os, name)

  def function(source, target, *args, **kwargs):
    if place in os.fspath(target):
      raise KeyboardInterrupt
    return original(source, target, *args, **kwargs)

  monkeypatch.setattr(os, name, function)


@pytest.mark.slow
def test_step_by_step_late_files_are_part_of_the_next_night(
  production, monkeypatch
):
  """Interrupted as well, before the link of the dataset and the release."""
  folder = production.run_folder(nights.THIRD)
  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    _interrupt_at(patched, 'symlink', '/dataset')
    production.run(nights.THIRD, nightly.DATASET)
  assert not list(folder.iterdir())
  result = production.run(nights.THIRD, nightly.DATASET)
  assert result['status'] == 'until dataset'
  assert [path.name for path in folder.iterdir()] == ['dataset']
  nights.write_day(production.raw, nights.BETWEEN, 'abyz')
  for step, name in (
    (nightly.DRIFT, 'drift.json'),
    (nightly.TRAIN, 'evaluation/summary.json'),
    (nightly.GATE, 'gate.json'),
  ):
    assert not (folder / name).exists()
    result |= {'status': f'until {step}'}
    assert production.run(nights.THIRD, step) == result
    assert (folder / name).exists()
  with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
    _interrupt_at(patched, 'rename', '/personalized_models/3')
    production.run(nights.THIRD)
  exported = production.folder / 'export'
  assert (exported / 'cluster_models' / '3').exists()
  assert not (exported / 'personalized_models' / '3').exists()
  result |= {
    'status': 'released',
    'released_version': 3,
    'current_version': 3,
  }
  assert production.run(nights.THIRD) == result
  assert len(production.history) == 3
  assert continuation.read_parent(folder)[3:] == (5, 1, 0, 0)  # a returns.
  later = production.run(nights.FOURTH, nightly.DATASET)
  assert later['dataset_version'] != result['dataset_version']
  assert later['parent'] == f'runs/{nights.THIRD}'


@pytest.mark.verify
def test_a_refused_candidate_is_continued_by_none(production):
  current = production.folder / 'export' / 'cluster_models' / '2'
  graph = (current / 'saved_model.pb').read_bytes()
  (current / 'saved_model.pb').write_bytes(b'')
  with pytest.raises(
    errors.ExportError,
    match=r'export cannot be compared with: .*binaries\.rollback',
  ):
    production.run(nights.THIRD)
  (current / 'saved_model.pb').write_bytes(graph)
  for _ in range(2):
    with pytest.raises(
      errors.NotApprovedError,
      match='gate refuses round 6: it takes too long.* start the date again',
    ):
      production.run(nights.THIRD, gate={'max_batch_seconds': 0.1})
  folder = production.run_folder(nights.THIRD)
  assert not json.loads((folder / 'gate.json').read_text())['blessed']
  assert len(production.history) == 2
  nights.write_day(production.raw, nights.FOURTH)
  later = production.run(nights.FOURTH, nightly.DATASET)
  assert later['parent'] == f'runs/{nights.SECOND}'


def test_a_rollback_holds_against_a_night_that_has_started(trained):
  """Before its gate and during it; what was released before stays so."""
  with releases.opened(trained.folder / 'export') as path:
    path.rollback()
  words = f'{nights.SECOND}, which was rolled back: .* Remove .*{nights.THIRD}'
  with pytest.raises(errors.NotApprovedError, match=words):
    trained.run(nights.THIRD)
  assert len(trained.history) == 3
  shutil.rmtree(trained.run_folder(nights.THIRD))
  result = trained.run(nights.THIRD)
  assert (result['status'], result['released_version']) == ('released', 4)
  assert result['parent'] == f'runs/{nights.FIRST}'
  report = trained.run_folder(nights.THIRD) / 'drift.json'
  assert json.loads(report.read_text())['parent'] == nights.FIRST


def test_a_parent_that_was_done_anew_on_other_data(trained):
  """Its models are current again, but not those that the night continues."""
  with releases.opened(trained.folder / 'export') as path:
    path.rollback()
  shutil.rmtree(trained.run_folder(nights.SECOND))
  nights.write_day(trained.raw, nights.SECOND, 'cdyz')
  assert trained.run(nights.SECOND)['status'] == 'released'
  words = f'{nights.SECOND}, which was done anew on other data since. Remove'
  with pytest.raises(errors.NotApprovedError, match=words):
    trained.run(nights.THIRD)
  assert len(trained.history) == 4


@pytest.mark.slow
def test_a_rollback_while_a_night_is_gated(trained, monkeypatch):
  gate = gating.gate

  def roll_back_first(*arguments):
    with releases.opened(trained.folder / 'export') as path:
      path.rollback()
    return gate(*arguments)

  monkeypatch.setattr(gating, 'gate', roll_back_first)
  with pytest.raises(errors.NotApprovedError, match='which was rolled back'):
    trained.run(nights.THIRD)
  assert len(trained.history) == 3


@pytest.mark.slow
def test_a_tracker_that_failed_is_asked_by_the_night_again(
  trained, monkeypatch
):
  sent = []

  def register(config, folder, bundles):
    sent.append([bundle.name for bundle in bundles])
    if len(sent) == 1:
      raise errors.InfrastructureError('away')

  monkeypatch.setattr(releasing.tracking, 'register', register)
  with pytest.raises(errors.InfrastructureError, match='away'):
    trained.run(nights.THIRD)
  for _ in range(2):
    trained.run(nights.THIRD)
  assert sent == [['3', '3']] * 2


def test_drift_is_that_from_the_checkpoint_that_is_continued(production):
  production.run(nights.THIRD, nightly.DRIFT, continuation={'round': '3'})
  report = production.run_folder(nights.THIRD) / 'drift.json'
  assert json.loads(report.read_text())['parent_round'] == 3


def test_a_night_whose_parent_is_gone(production):
  shutil.rmtree(production.run_folder(nights.SECOND))
  with pytest.raises(
    errors.DataError,
    match=rf'{nights.SECOND}, which made the current.* is gone',
  ):
    production.run(nights.THIRD)


def test_a_first_night_done_anew_starts_from_nothing(tmp_path):
  """Its bad models were released, and there are none to roll back to."""
  folder = tmp_path / 'production'
  production = Production(tmp_path / 'raw', folder)
  nights.write_day(production.raw, nights.FIRST, 'abyz')
  production.run(nights.FIRST)
  shutil.rmtree(production.run_folder(nights.FIRST))
  nights.write_day(production.raw, nights.SECOND, 'bcdyz')
  with pytest.raises(errors.DataError, match=f'do --as_of={nights.FIRST} anew'):
    production.run(nights.SECOND)
  nights.write_day(production.raw, nights.FIRST, 'byz')
  result = production.run(nights.FIRST)
  assert (result['status'], result['released_version']) == ('released', 2)
  assert result['parent'] is None
  run = production.run_folder(nights.FIRST)
  assert _rounds(run)[-1] == nights.NUM_ROUNDS
  later = production.run(nights.SECOND, nightly.DATASET)
  assert later['parent'] == f'runs/{nights.FIRST}'


def test_a_night_without_labels_waits_for_them(tmp_path):
  production = Production(tmp_path / 'raw', tmp_path / 'production')
  nights.write_day(production.raw, nights.FIRST, 'abyz')
  (path,) = production.raw.glob('*.csv')
  labelled = path.read_text()
  path.write_text(re.sub(r'\b(yes|no)\b', '', labelled))
  dataset = {'keep_unlabelled': True}
  with pytest.raises(errors.DataError, match='no client of .* has a labelled'):
    production.run(nights.FIRST, nightly.DATASET, dataset=dataset)
  path.write_text(labelled)
  production.run(nights.FIRST, nightly.DATASET, dataset=dataset)
  assert (production.run_folder(nights.FIRST) / 'dataset').exists()


def _link(folder: pathlib.Path, target: pathlib.Path):
  """Moves a folder, and leaves a symbolic link in its place."""
  target.parent.mkdir(parents=True, exist_ok=True)
  folder.rename(target)
  folder.symlink_to(target)


def test_runs_and_exports_on_other_disks(tmp_path):
  """Symbolic links, of which the history has the targets."""
  production = Production(tmp_path / 'raw', tmp_path / 'production')
  for name in (nightly.RUNS, nightly.EXPORT):
    (production.folder / name).mkdir(parents=True)
    _link(production.folder / name, tmp_path / 'disks' / name / 'data')
  nights.write_day(production.raw, nights.FIRST)
  first = production.run(nights.FIRST)
  nights.write_day(production.raw, nights.SECOND)
  second = production.run(nights.SECOND, nightly.DATASET)
  assert second['parent'] == f'runs/{nights.FIRST}'
  shutil.rmtree((production.run_folder(nights.FIRST) / 'dataset').resolve())
  assert production.run(nights.FIRST) == first


def test_runs_may_move_to_another_folder(production):
  """With a link to it; the history still has the place before."""
  runs = production.folder / 'runs'
  _link(runs, production.folder / 'elsewhere')
  result = production.run(nights.THIRD, nightly.DATASET)
  assert result['parent'] == f'runs/{nights.SECOND}'


@pytest.mark.parametrize(
  ('night', 'until', 'other'),
  [
    (nights.FIRST, nightly.GATE, '../runs/hotfix'),
    (None, nightly.DATASET, '../../other/2026-12-01'),
  ],
)
def test_releases_of_other_runs_are_no_nights(production, night, until, other):
  """Nor those of a run whose name is no date, and later than any."""
  path = production.folder / 'export' / releases.HISTORY_FILE
  text = path.read_text()
  for date in {nights.FIRST, nights.SECOND} - {night}:
    text = text.replace(f'../runs/{date}', other)
  path.write_text(text)
  result = production.run(nights.THIRD, until)
  assert result['parent'] == (night and f'runs/{night}')
  assert result['status'] == f'until {until}'


def test_retention_leaves_what_nights_continue(production):
  """Two nights that are not released, of two versions that are kept."""
  options = nightly.Options(nightly.DATASET, keep_versions=2)
  for model in releases.MODELS:  # Of the second the history tells alone.
    shutil.rmtree(production.folder / 'export' / model)
  for date in (nights.THIRD, nights.FOURTH):
    nights.write_day(production.raw, date, 'abcdyz')
    nightly.run(nights.parse(production.raw), production.folder, date, options)
  assert (production.run_folder(nights.SECOND) / 'dataset').exists()
  assert not (production.run_folder(nights.FIRST) / 'dataset').exists()


def test_after_a_rollback_nights_go_on_though_retention_was_at_work(production):
  """Two nights, of which none was released, have left two other versions."""
  options = nightly.Options(nightly.DATASET, keep_versions=2)
  for date in (nights.THIRD, nights.FOURTH):
    nights.write_day(production.raw, date, 'abcdyz')
    nightly.run(nights.parse(production.raw), production.folder, date, options)
  with releases.opened(production.folder / 'export') as path:
    path.rollback()
  nights.write_day(production.raw, '2026-11-06', 'abcdyz')
  result = production.run('2026-11-06', nightly.DATASET)
  assert result['parent'] == f'runs/{nights.FIRST}'


def test_too_much_drift_ends_the_night_before_training(production):
  nights.write_day(
    production.raw, nights.THIRD, 'abcdyz' * 3, turns_labels=True
  )
  with pytest.raises(errors.NotApprovedError, match='feature_shift is'):
    production.run(nights.THIRD, drift={'max_feature_shift': 1e-6})
  folder = production.run_folder(nights.THIRD)
  assert (folder / 'drift.json').exists()
  assert not (folder / checkpoint.FOLDER).exists()


def test_data_of_another_shape_are_mended_and_the_night_started_again(
  production,
):
  options = {'source': {'options': {'feature_columns': ('x',)}}}
  with pytest.raises(
    errors.DataError,
    match=rf'^{nights.THIRD} cannot .* x_shape .* In a night: mend the raw',
  ):
    production.run(nights.THIRD, dataset=options)
  assert not production.run_folder(nights.THIRD).exists()
  result = production.run(nights.THIRD, nightly.DATASET)
  assert result['status'] == 'until dataset'


@pytest.mark.parametrize(
  ('other', 'words'),
  [
    ({'algorithm': 'ifca'}, "its algorithm is 'fed_soft', the config says"),
    ({'model': 'mlp'}, 'its model is .*, the config says'),
  ],
)
def test_a_parent_of_another_kind(production, other, words):
  with pytest.raises(
    errors.ConfigError, match=rf'{nights.SECOND} cannot be continued: {words}'
  ):
    production.run(nights.THIRD, **other)
  assert len(production.history) == 2


def test_a_date_before_the_first_night(made):
  with pytest.raises(
    errors.ConfigError,
    match=rf'--as_of=2026-10-31 is before {nights.FIRST}, the first night',
  ):
    made.run('2026-10-31')
  assert not made.run_folder('2026-10-31').exists()


def test_an_unknown_step_is_refused_before_all_work(tmp_path):
  with pytest.raises(errors.ConfigError, match="until must be .*got 'traning'"):
    Production(tmp_path, tmp_path).run(nights.FIRST, 'traning')
  assert not list(tmp_path.iterdir())


def test_an_invalid_retention_is_refused_before_all_work(tmp_path):
  with pytest.raises(
    errors.ConfigError, match='keep_versions must be an integer >= 2, got 1'
  ):
    nightly.run(
      nights.parse(tmp_path),
      tmp_path / 'production',
      nights.FIRST,
      nightly.Options(keep_versions=1),
    )
  assert not (tmp_path / 'production').exists()


@pytest.mark.parametrize(
  ('section', 'options', 'words'),
  [
    (
      'splits',
      {'split_by': 'client'},
      "split_by='client' moves .* or 'client_time'",
    ),
    ('splits', {'split_by': 'time'}, "split_by='time' moves "),
    (
      'partition',
      {'num_unseen_clients': 1},
      'num_unseen_clients=1 takes other clients .*unseen_fraction',
    ),
  ],
)
def test_what_tests_on_training_data_is_refused_before_all_work(
  tmp_path, section, options, words
):
  config = nights.parse(tmp_path)
  changed = dataclasses.replace(getattr(config.dataset, section), **options)
  dataset = dataclasses.replace(config.dataset, **{section: changed})
  with pytest.raises(errors.ConfigError, match=words):
    nightly.run(
      dataclasses.replace(config, dataset=dataset),
      tmp_path / 'production',
      nights.FIRST,
    )
  assert not (tmp_path / 'production').exists()


def test_a_dataset_version_that_retention_removed(production):
  production.run(nights.THIRD, nightly.DATASET)
  folder = production.run_folder(nights.THIRD)
  shutil.rmtree((folder / 'dataset').resolve())
  with pytest.raises(
    errors.DataError, match=rf'{nights.THIRD} cannot.*Remove the folder'
  ):
    production.run(nights.THIRD)
  shutil.rmtree(folder)
  assert production.run(nights.THIRD, nightly.DATASET)['status'] == (
    'until dataset'
  )


def test_a_released_night_whose_dataset_version_retention_removed(production):
  """Its name is in the history; nothing of it is done anew."""
  folder = production.run_folder(nights.SECOND)
  version = _version_of(folder)
  shutil.rmtree((folder / 'dataset').resolve())
  before = raw_data.file_bytes(production.folder)
  result = production.run(nights.SECOND)
  assert (result['status'], result['released_version']) == ('released', 2)
  assert result['dataset_version'] == version
  assert raw_data.file_bytes(production.folder) == before


def test_two_nights_at_once(made):
  with workdir.lock(made.folder):
    with pytest.raises(errors.WorkdirBusyError, match='is in use by process'):
      made.run(nights.SECOND)


@pytest.mark.slow
def test_fitted_values_are_those_of_the_parent(tmp_path, monkeypatch):
  """And the same rows are no new data, though their recipe is another."""
  raw = tmp_path / 'raw'
  config = nights.parse(raw)
  source = config.dataset.source
  features = ({'name': 'x'}, {'name': 'z', 'encoding': 'by_client'})
  source = dataclasses.replace(
    source,
    options={**source.options, 'feature_columns': (), 'features': features},
  )
  config = dataclasses.replace(
    config, dataset=dataclasses.replace(config.dataset, source=source)
  )

  def build(date):
    folder = tmp_path / 'production'
    options = nightly.Options(nightly.DATASET)
    result = nightly.run(config, folder, date, options)
    version = folder / 'dataset' / 'versions' / result['dataset_version']
    return result, json.loads((version / 'manifest.json').read_text())

  nights.write_day(raw, nights.FIRST, 'aby')
  _, first = build(nights.FIRST)
  monkeypatch.setattr(
    nightly._Night,
    '_find_parent',
    lambda night: night._folder / 'runs' / nights.FIRST,
  )
  result, again = build(nights.SECOND)
  assert result['status'] == 'no_new_data'
  nights.write_day(raw, nights.SECOND, 'byz', turns_labels=True)
  result, second = build(nights.SECOND)
  assert result['status'] == 'until dataset'
  assert second['features'] == first['features'] == again['features']
  assert second['sources'] != first['sources']
  assert second['recipe']['fitted_from'] == again['recipe']['fitted_from']


def test_later_nights_read_images_of_an_object_store(tmp_path, monkeypatch):
  """Their classes are those of the folders, which are not on this machine."""
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  store = objects_lib.Objects('memory://nights/images')
  options = raw_sources.write_images(tmp_path / 'raw')
  for path in (tmp_path / 'raw').rglob('*.png'):
    store.upload(path, str(path.relative_to(tmp_path / 'raw')))
  config = nights.parse(tmp_path)
  source = dataset_options.SourceConfig(
    'images', {**options, 'folder': 'memory://nights/images'}
  )
  dataset = dataclasses.replace(
    config.dataset,
    source=source,
    splits=dataset_options.SplitsConfig(held_out_fraction=0.0),
  )
  config = dataclasses.replace(config, dataset=dataset)
  folder = tmp_path / 'production'

  def build(date):
    night = nightly.Options(nightly.DATASET)
    return nightly.run(config, folder, date, night)

  first = build(nights.FIRST)
  monkeypatch.setattr(
    nightly._Night,
    '_find_parent',
    lambda night: night._folder / 'runs' / nights.FIRST,
  )
  second = build(nights.SECOND)
  assert second['status'] == 'no_new_data'
  store.upload(tmp_path / 'raw/ann/cat/0.png', 'eve/cat/9.png')
  third = build(nights.THIRD)
  assert third['status'] == 'until dataset'
  assert third['dataset_version'] != first['dataset_version']
