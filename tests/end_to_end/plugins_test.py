"""An algorithm, a Keras model and a source from a package outside of the tree."""

import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import contract, csv_files, toys
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import plugins
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import config_file, experiment

_PACKAGE = pathlib.Path(__file__).parents[1] / 'testing' / 'own_lab'


@pytest.fixture(name='folder', scope='module')
def _folder(tmp_path_factory):
  """A folder with the package, as users have theirs."""
  folder = tmp_path_factory.mktemp('theirs')
  shutil.copytree(
    _PACKAGE, folder / 'own_lab', ignore=shutil.ignore_patterns('__pycache__')
  )
  return folder


@pytest.fixture(name='finished', scope='module')
def _finished(launcher, folder):
  return launcher.run(
    'binaries.run',
    '--plugins=own_lab',
    f'--config={folder}/own_lab/config.py',
    f'--workdir={folder}/run',
    PYTHONPATH=str(folder),
  )


@pytest.fixture(name='loaded')
def _loaded(folder, monkeypatch, kept_registries):
  """Loads the package in this process, for the length of a test."""
  monkeypatch.syspath_prepend(str(folder))
  plugins.load(['own_lab'])


@pytest.mark.verify
def test_it_runs_from_raw_data_to_a_served_prediction(finished):
  assert finished.returncode == 0, finished.stderr
  assert 'Asked over HTTP, the model of client' in finished.stdout
  assert 'Traceback' not in finished.stderr
  assert not finished.processes()


@pytest.mark.verify
def test_it_learns_the_rings(finished, folder):
  assert finished.returncode == 0, finished.stderr
  rows = csv_files.read(folder / 'run' / 'metrics.csv')
  scores = [
    float(row['participating/test/cluster/accuracy'])
    for row in rows
    if row.get('participating/test/cluster/accuracy')
  ]
  # The rings are not linearly separable: any line is right for 3 of 4 at most.
  assert scores[-1] > 0.8


@pytest.mark.verify
def test_the_bundle_answers_as_the_model_does(finished, folder, loaded):
  assert finished.returncode == 0, finished.stderr
  config = experiment.parse(config_file.load(f'{folder}/own_lab/config.py'))
  bundle = tf.saved_model.load(
    str(folder / 'run' / 'export' / 'cluster_models' / '1')
  )
  with dataset_lib.FederatedDataset.open(folder / 'run' / 'dataset') as data:
    model = experiment.build_model(config, data.schema, data.feature_spec)
    x = data.examples(data.client_ids[0], 'train').x
  assert (model.name, len(model.weights_spec())) == ('ring_net', 4)
  weights = {name: leaf[0] for name, leaf in bundle.cluster_weights.items()}
  served = bundle.signatures['serving_default'](
    x=tf.constant(x), cluster_id=tf.zeros([len(x)], tf.int32)
  )
  np.testing.assert_allclose(
    served['logits'], model.apply(weights, x), rtol=1e-5, atol=1e-5
  )


def test_it_needs_its_plug_in(launcher, folder):
  program = launcher.run(
    'binaries.describe', '--algorithm=half_step', PYTHONPATH=str(folder)
  )
  assert program.returncode == 1
  program = launcher.run(
    *('binaries.describe', '--plugins=own_lab', '--algorithm=half_step'),
    *('--model=ring_net', '--source=rings'),
    PYTHONPATH=str(folder),
  )
  assert program.returncode == 0, program.stderr
  assert 'algorithm half_step: Half step: the global' in program.stdout
  assert '--config.model.width: Hidden units, >= 1.' in program.stdout
  assert 'source rings: Synthetic source of points' in program.stdout
  program = launcher.run(
    'binaries.train',
    '--plugins=own_lab,own_lap',
    f'--config={folder}/own_lab/config.py',
    f'--workdir={folder}/refused',
    PYTHONPATH=str(folder),
  )
  assert program.returncode == 1
  (line,) = program.complaints
  assert "plug-in 'own_lap': there is no module 'own_lap'" in line


def _build(name, **options):
  return algorithms.build_algorithm(
    algorithms.parse_config({'name': name, **options}), toys.logistic((6,))
  )


@pytest.mark.verify
def test_runtimes_agree_on_its_algorithm(loaded):
  contract.run_on_all_runtimes(
    _build('half_step', cohort_size=3), toys.image_clients(5, (6,))
  )


def test_a_whole_step_is_fed_avg(loaded):
  source = toys.image_clients(5, (6,))
  results = [
    toys.run_rounds(algorithm, source, 2)[0].model_weights
    for algorithm in (
      _build('half_step', cohort_size=3, step=1.0),
      _build('fed_avg', cohort_size=3),
    )
  ]
  contract.assert_all_close(*results)


@pytest.mark.verify
def test_workers_of_beam_import_its_source(finished, launcher, folder):
  program = launcher.run(
    'binaries.preprocess',
    '--plugins=own_lab',
    f'--config={folder}/own_lab/config.py',
    f'--workdir={folder}/by_workers',
    '--nocard',
    '--beam_options=--direct_num_workers=2 '
    '--direct_running_mode=multi_processing',
    PYTHONPATH=str(folder),
  )
  assert program.returncode == 0, program.stderr
  versions = [
    (folder / run / 'dataset' / 'CURRENT').read_text()
    for run in ('run', 'by_workers')
  ]
  assert versions[0] == versions[1]
