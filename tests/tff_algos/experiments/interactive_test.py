"""An experiment in Python: the same files and numbers as programs."""

import filecmp
import io
import pathlib
import shutil
from typing import NamedTuple

import numpy as np
import pandas
import pytest

from tests.testing import csv_files
from tff_algos.core import errors, sealed_json
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import evaluating, interactive, training
from tff_algos.training import checkpoint, continuation

_DEBUG = {'name': 'debug'}


def _regressions(workdir, **overrides):
  return interactive.Experiment.from_config(
    'fed_soft/synthetic:smoke',
    workdir,
    algorithm={'local_training': {'num_local_epochs': 2}},
    training={'num_rounds': 2, 'checkpoint_interval': 1},
    runtime=_DEBUG,
    **overrides,
  )


class _Trained(NamedTuple):
  experiment: interactive.Experiment
  calls: list


@pytest.fixture(scope='module')
def trained(trained_regressions, tmp_path_factory):
  """The experiment of `trained_regressions`, in three calls of `fit`.

  One round; a second, which Ctrl-C interrupts; the second again.
  """
  experiment = _regressions(tmp_path_factory.mktemp('interactive'))
  assert experiment.config == trained_regressions.config
  calls = []

  def note(round_num, metrics):
    calls.append((round_num, 'train/loss' in metrics))

  def interrupt(round_num, metrics):
    raise KeyboardInterrupt

  experiment.fit(1, [note])
  with pytest.raises(KeyboardInterrupt):
    experiment.fit(2, [note, interrupt])
  assert experiment.num_trained_rounds == 1
  return _Trained(experiment.fit(callbacks=[note]), calls)


def test_training_is_that_of_the_function(trained, trained_regressions):
  theirs = trained_regressions.folder
  found, wanted = (
    csv_files.read_rounds(folder / 'metrics.csv')
    for folder in (trained.experiment.workdir, theirs)
  )
  assert found == wanted
  state = pathlib.Path('checkpoints/round_000002/server_state.npz')
  ours, expected = (
    np.load(trained.experiment.workdir / state),
    np.load(theirs / state),
  )
  assert ours.files == expected.files
  for key in ours.files:
    np.testing.assert_array_equal(ours[key], expected[key])


def test_metrics_are_a_frame_of_rounds(trained):
  frame = trained.experiment.metrics()
  assert list(frame.index) == [0, 1, 2]
  assert np.isfinite(frame.loc[2, 'train/loss'])


def test_description_says_what_is_trained(trained):
  assert 'trained rounds: 2 of 2' in repr(trained.experiment)
  assert (
    '<td style="text-align:left">fed_soft</td>'
    in trained.experiment._repr_html_()
  )
  algorithm = repr(trained.experiment.build_algorithm())
  assert algorithm.startswith("<Algorithm 'fed_soft'; clusters: 2, phases: ")
  with dataset_lib.FederatedDataset.open(
    trained.experiment.workdir / 'dataset'
  ) as data:
    assert f'participating clients: {len(data.client_ids)}' in repr(data)
    assert 'labels: numbers' in repr(data)


def test_rounds_of_the_parent_are_not_counted(tmp_path):
  experiment = _regressions(tmp_path)
  parent = continuation.Parent('../first', 24, 'v')
  sealed_json.write(tmp_path / checkpoint.PARENT_FILE, parent._asdict())
  assert 'trained rounds: 0 of 2' in repr(experiment)
  (tmp_path / checkpoint.FOLDER / 'round_000026').mkdir(parents=True)
  assert 'trained rounds: 2 of 2' in repr(experiment)


@pytest.fixture(scope='module')
def finished(finished_run, tmp_path_factory):
  """The experiment of `finished_run`, in a copy of its folder."""
  workdir = tmp_path_factory.mktemp('copied') / 'run'
  shutil.copytree(finished_run.folder, workdir, symlinks=True)
  return interactive.Experiment(finished_run.config, workdir)


def test_evaluation_is_that_of_the_program(finished, finished_run):
  written = finished_run.folder / 'evaluation'
  for name in ('clients.csv', 'centers.csv', 'summary.json'):
    (finished.workdir / 'evaluation' / name).unlink()
  frame = finished.evaluate()
  assert filecmp.cmp(
    finished.workdir / 'evaluation/summary.json',
    written / 'summary.json',
    False,
  )
  expected = pandas.read_csv(written / 'clients.csv', index_col='client_id')
  assert list(frame.index) == list(expected.index)
  assert list(frame.columns) == list(expected.columns)
  numbers = expected.select_dtypes('number')
  np.testing.assert_array_equal(frame[numbers.columns], numbers)
  text = finished.summary().loc['personalized models', 'last']
  assert text in finished_run.program.stdout


def test_pictures_are_those_of_the_report(finished):
  drawn = finished.plot()
  written = (finished.workdir / 'report').glob('*.png')
  assert {f'{name}.png' for name in drawn} == {path.name for path in written}


@pytest.mark.verify
def test_bundles_are_those_of_the_program(finished, finished_run):
  """The weights of both; the same checkpoint gives the same bytes."""
  for bundle in finished.export():
    assert int(bundle.name) > 1
    theirs = finished_run.folder / 'export' / bundle.parent.name / '1'
    names = [
      path.relative_to(theirs)
      for path in theirs.rglob('variables*')
      if path.is_file()
    ]
    assert names
    for name in names:
      assert filecmp.cmp(bundle / name, theirs / name, False), name


def test_callbacks_get_each_round_with_its_metrics(trained):
  assert trained.calls == [(0, False), (1, True), (2, True), (2, True)]


@pytest.mark.parametrize(('shows', 'expected'), [(True, True), (None, False)])
def test_progress_bar_is_for_those_who_watch(
  shows, expected, monkeypatch, tmp_path
):
  given = {}
  monkeypatch.delitem(interactive.sys.modules, 'ipykernel', raising=False)
  monkeypatch.setattr(
    training, 'train', lambda *_, **options: given.update(options)
  )
  experiment = _regressions(tmp_path)
  monkeypatch.setattr(interactive.Experiment, 'build_dataset', _no_dataset)
  experiment.fit(shows_progress=shows)
  assert given['shows_progress'] == expected


def _no_dataset(self):
  return io.BytesIO()  # It can be closed.


def test_default_workdir_has_the_name_of_the_config():
  experiment = interactive.Experiment.from_config('fed_soft/digits:smoke')
  assert experiment.workdir == pathlib.Path('runs/fed_soft_digits_smoke')
  assert (
    experiment.config
    == interactive.Experiment.from_config(
      'configs/fed_soft/digits.py:smoke'
    ).config
  )


def test_overrides_are_checked(tmp_path):
  with pytest.raises(errors.ConfigError, match="did you mean 'num_rounds'"):
    interactive.Experiment.from_config(
      'fed_soft/digits', tmp_path, training={'num_round': 3}
    )
  with pytest.raises(
    errors.ConfigError, match='num_rounds must be an integer >= 1'
  ):
    interactive.Experiment.from_config(
      'fed_soft/digits', tmp_path, training={'num_rounds': 0}
    )


def test_steps_that_come_too_early_say_what_is_missing(tmp_path):
  experiment = interactive.Experiment.from_config('fed_soft/digits', tmp_path)
  for step in (experiment.plot, experiment.report, experiment.summary):
    with pytest.raises(
      errors.UserError, match=r'call fit\(\) and evaluate\(\)'
    ):
      step()
  with pytest.raises(errors.UserError, match=r'call fit\(\) first'):
    experiment.metrics()


def test_without_pandas_or_beam_the_extra_is_named(monkeypatch, tmp_path):
  monkeypatch.setitem(interactive.sys.modules, 'pandas', None)
  experiment = interactive.Experiment.from_config('fed_soft/digits', tmp_path)
  with pytest.raises(errors.UserError, match=r'tff-algos\[notebook\]'):
    experiment.evaluate()


def test_client_ids_of_a_frame_are_texts(tmp_path, monkeypatch):
  """Neither numbers nor missing, whatever they look like."""
  monkeypatch.setattr(evaluating, 'evaluate', lambda *_, **unused: None)
  experiment = _regressions(tmp_path)
  (tmp_path / 'evaluation').mkdir()
  (tmp_path / 'evaluation' / 'clients.csv').write_text(
    'client_id,accuracy\n007,0.5\nNA,\n1e3,1\n'
  )
  frame = experiment.evaluate()
  assert [*frame.index] == ['007', 'NA', '1e3']
  np.testing.assert_array_equal(frame['accuracy'], [0.5, np.nan, 1])
