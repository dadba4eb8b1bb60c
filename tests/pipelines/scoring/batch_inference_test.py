"""Scored datasets against NumPy, whatever Beam runs it on."""

import shutil

import numpy as np
import pytest
from pyarrow import parquet

from pipelines import build_dataset
from pipelines.engines import failures
from pipelines.publishing import published
from pipelines.publishing import staging as staging_lib
from pipelines.scoring import batch_inference, model_choice, predictions
from tests.testing import exportable, raw_data, scoring
from tests.testing import published as publishing
from tff_algos.core import cache_folder, errors
from tff_algos.core import model as model_lib
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import layout
from tff_algos.stores import objects as objects_lib


@pytest.fixture(name='workdir', scope='module')
def make_workdir(tmp_path_factory):
  return scoring.write_workdir(tmp_path_factory.mktemp('run'))


@pytest.fixture(name='scored', scope='module')
def make_scored(workdir, tmp_path_factory):
  """Predictions with default options: their folder, and the result."""
  folder = tmp_path_factory.mktemp('scored')
  return folder, scoring.score(workdir, folder)


@pytest.fixture(name='copy')
def make_copy(scored, tmp_path):
  """A copy of these predictions that a test may change."""
  return shutil.copytree(scored[0], tmp_path / 'scored')


def _rows(result):
  """Returns client id -> its rows, in order."""
  found = {}
  for row in parquet.read_table(result.folder).to_pylist():
    found.setdefault(row['client_id'], []).append(row)
  return found


def _states(task=model_lib.CLASSIFICATION):
  return exportable.states(exportable.linear_model(task))


def _oracle(client_id, x, cluster_id=None):
  server_state, client_states = _states()
  if cluster_id is None:
    index = exportable.CLIENT_IDS.index(client_id)
    weights = client_states.personalized_weights
  else:
    index, weights = cluster_id, server_state.cluster_weights
  return exportable.softmax(exportable.oracle_logits(weights, index, x))


def _best_cluster(examples):
  losses = [
    -np.mean(
      np.log(
        _oracle('', examples.x, cluster)[range(len(examples.y)), examples.y]
      )
    )
    for cluster in range(exportable.NUM_CLUSTERS)
  ]
  return int(np.argmin(losses))


def _check(rows, examples, probabilities):
  assert [row['position'] for row in rows] == list(range(len(examples.y)))
  assert [row['label'] for row in rows] == examples.y.tolist()
  best = probabilities.argmax(axis=1)
  assert [row['prediction'] for row in rows] == best.tolist()
  assert [row['correct'] for row in rows] == (best == examples.y).tolist()
  np.testing.assert_allclose(
    [row['probability'] for row in rows], probabilities.max(axis=1), rtol=1e-5
  )


def test_every_client_is_scored_by_its_model(workdir, tmp_path):
  result = scoring.score(workdir, tmp_path, assignments={'finn': 1, 'anna': 1})
  rows = _rows(result)
  with dataset_lib.FederatedDataset.open(workdir / 'dataset') as dataset:
    assert set(rows) == set(scoring.CLIENT_IDS)
    for client_id, mine in rows.items():
      examples = dataset.examples(client_id, 'test')
      assert examples.num_examples
      cluster_id, chosen_by = None, 'client_id'
      if client_id == 'finn':
        cluster_id, chosen_by = 1, 'assignment'
      elif client_id == 'eve':
        cluster_id = _best_cluster(dataset.examples(client_id, 'train'))
        chosen_by = 'lowest_loss'
      _check(mine, examples, _oracle(client_id, examples.x, cluster_id))
      model = 'personalized' if cluster_id is None else 'cluster'
      for row in mine:
        assert (row['model'], row['cluster_id'], row['chosen_by']) == (
          model,
          cluster_id,
          chosen_by,
        )
  everything = [row['correct'] for mine in rows.values() for row in mine]
  assert result.manifest['accuracy'] == np.mean(everything)
  assert result.manifest['counts'] == {
    'clients': 5,
    'clients_by_assignment': 1,
    'clients_by_client_id': 3,
    'clients_by_lowest_loss': 1,
    'examples': len(everything),
  }
  text = batch_inference.summarize(result)
  for part in (
    'of 5 clients',
    '3 by client_id',
    '1 by lowest_loss',
    'accuracy',
  ):
    assert part in text


def test_unlabelled_clients_are_scored(workdir, tmp_path):
  unlabelled = ('anna', 'eve')
  result = scoring.score(
    workdir,
    tmp_path / 'out',
    dataset=scoring.build_dataset_of_known_clients(tmp_path, unlabelled),
    otherwise='cluster_0',
  )
  counts = result.manifest['counts']
  assert counts['unlabelled_examples'] == 120
  table = parquet.read_table(result.folder).to_pylist()
  assert len(table) == counts['examples'] > 120
  for row in table:
    is_unlabelled = row['client_id'] in unlabelled
    assert (row['label'] is None) == is_unlabelled
    assert (row['correct'] is None) == is_unlabelled
    assert (row['group'] == 'unlabelled') == is_unlabelled
  correct = [row['correct'] for row in table if row['correct'] is not None]
  assert result.manifest['accuracy'] == np.mean(correct)


def test_one_cluster_for_all(workdir, tmp_path):
  result = scoring.score(
    workdir,
    tmp_path,
    personalized=False,
    otherwise='cluster_1',
    split='train',
    max_rows=7,
  )
  with dataset_lib.FederatedDataset.open(workdir / 'dataset') as dataset:
    for client_id, rows in _rows(result).items():
      examples = dataset.examples(client_id, 'train')
      assert examples.num_examples > 7
      _check(rows, examples, _oracle(client_id, examples.x, 1))


def test_regression(tmp_path):
  workdir = scoring.write_regression_workdir(tmp_path / 'run')
  result = scoring.score(
    workdir, tmp_path / 'out', personalized=False, group='unseen'
  )
  server_state, _ = _states(model_lib.REGRESSION)
  errors_squared = []
  with dataset_lib.FederatedDataset.open(workdir / 'dataset') as dataset:
    rows = _rows(result)
    assert set(rows) <= set(dataset.unseen_client_ids)
    for client_id, mine in rows.items():
      examples = dataset.examples(client_id, 'test')
      outputs = exportable.oracle_logits(
        server_state.cluster_weights, mine[0]['cluster_id'], examples.x
      )[:, 0]
      found = [row['prediction'] for row in mine]
      np.testing.assert_allclose(found, outputs, rtol=1e-4, atol=1e-5)
      errors_squared += ((outputs - examples.y) ** 2).tolist()
  assert result.manifest['mean_squared_error'] == pytest.approx(
    np.mean(errors_squared), rel=1e-4
  )
  assert 'mean squared error' in batch_inference.summarize(result)


@pytest.mark.parametrize(
  ('num_workers', 'mode'),
  [
    (2, 'multi_threading'),
    # One process has all to pickle and to load; each costs a TensorFlow.
    pytest.param(1, 'multi_processing', marks=pytest.mark.verify),
  ],
)
def test_workers_change_no_byte(workdir, scored, tmp_path, num_workers, mode):
  options = [
    f'--direct_num_workers={num_workers}',
    f'--direct_running_mode={mode}',
  ]
  scoring.score(workdir, tmp_path, beam_options=options)
  one, two = raw_data.file_bytes(scored[0]), raw_data.file_bytes(tmp_path)
  assert one == two
  assert len(one) == 3 + 2  # Three shards, what they say, CURRENT.


def test_nothing_is_scored_twice(workdir, scored, copy, monkeypatch):
  _, first = scored
  before = raw_data.file_bytes(copy)
  other = scoring.score(workdir, copy, split='train', otherwise='cluster_0')
  monkeypatch.setattr(batch_inference, '_run', None)  # Must not be called.
  again = scoring.score(workdir, copy)
  assert (first.reused, other.reused, again.reused) == (False, False, True)
  assert again.folder.name == first.folder.name != other.folder.name
  assert again.manifest == first.manifest
  after = raw_data.file_bytes(copy)
  assert {name: after[name] for name in before} == before
  assert '(were there already)' in batch_inference.summarize(again)


def test_damaged_predictions_are_made_again(workdir, copy):
  before = raw_data.file_bytes(copy)
  (path,) = copy.glob(f'versions/*/{predictions.MANIFEST}')
  path.write_text('{}')
  assert not scoring.score(workdir, copy).reused
  assert raw_data.file_bytes(copy) == before


def test_new_models_give_new_predictions(workdir, scored, copy, tmp_path):
  new = shutil.copytree(workdir, tmp_path / 'run')
  bundles = new / 'export' / 'cluster_models'
  shutil.copytree(bundles / '1', bundles / '2')
  second = scoring.score(new, copy)
  assert not second.reused
  assert second.folder.name != scored[1].folder.name
  assert second.manifest['models']['cluster']['version'] == 2


def test_failure_leaves_what_was_published(workdir, copy, monkeypatch):
  before = raw_data.file_bytes(copy)

  def crash(self, keyed):
    raise RuntimeError('power cut')
    yield

  monkeypatch.setattr(predictions.WriteShard, 'process', crash)
  with pytest.raises(RuntimeError, match='power cut'):
    scoring.score(workdir, copy, otherwise='cluster_0')
  assert raw_data.file_bytes(copy) == before
  assert not list(copy.glob('.staging-*'))


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    ({'otherwise': 'refuse'}, "client 'eve' has no personalized model"),
    (
      {'pick_split': 'validation'},
      "client 'eve' has no validation examples to pick a cluster by",
    ),
  ],
)
def test_clients_without_a_model(workdir, tmp_path, options, words):
  with pytest.raises(errors.DataError, match=words):
    scoring.score(workdir, tmp_path / 'out', **options)
  assert not (tmp_path / 'out').exists()


def test_output_may_not_be_the_dataset(workdir):
  with pytest.raises(errors.ConfigError, match='into the dataset itself'):
    scoring.score(workdir, workdir / 'dataset')


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    ({'split': 'validation'}, "group='all' has examples of split='validation'"),
    ({'group': 'unseen'}, "group='unseen' has examples of split='test'"),
  ],
)
def test_nothing_to_score(workdir, copy, options, words):
  """What was scored before stays current."""
  before = raw_data.file_bytes(copy)
  with pytest.raises(errors.DataError, match=f'no client of {words} to score'):
    scoring.score(workdir, copy, **options)
  assert raw_data.file_bytes(copy) == before


def test_several_labels_of_an_example_are_refused(tmp_path):
  (tmp_path / 'raw').mkdir()
  arrays = {
    'x': np.arange(18, dtype=np.int32).reshape(6, 3),
    'y': np.arange(18).reshape(6, 3) % 4,
    'client': np.array(['ann', 'bob'] * 3),
  }
  for name, array in arrays.items():
    np.save(tmp_path / 'raw' / f'{name}.npy', array)
  config = raw_data.digits_config(
    source={'name': 'arrays', 'options': {'folder': str(tmp_path / 'raw')}},
    partition={'law': 'natural'},
    distributions={},
    sizes={},
    num_shards=1,
  )
  build_dataset.build(config, tmp_path / 'dataset')
  with pytest.raises(errors.ConfigError, match='a label at each of 3 places'):
    scoring.score(tmp_path, tmp_path / 'out')


def test_an_engine_that_loses_clients_is_found_out(
  workdir, tmp_path, monkeypatch
):
  original = batch_inference.ReadClients.process

  def lose(self, shard):
    for batch in original(self, shard):
      if batch[0][1].client_id != 'b/2':
        yield batch

  monkeypatch.setattr(batch_inference.ReadClients, 'process', lose)
  with pytest.raises(errors.InfrastructureError, match='lost clients: 4 of 5'):
    scoring.score(workdir, tmp_path)
  assert not list(tmp_path.iterdir())


def test_damage_that_a_worker_finds_passes_through_any_engine(tmp_path):
  result = build_dataset.build(raw_data.digits_config(), tmp_path)
  folder = layout.version_folder(tmp_path, result.version)
  for path in folder.glob('*.array_record'):
    path.write_bytes(bytes(path.stat().st_size))
  scorer = batch_inference.Scorer(
    published.Reader(folder), (), model_choice.ScoringConfig(), {}, 8
  )
  staging = staging_lib.Staging(tmp_path)
  step = batch_inference.ReadClients(scorer, staging)
  step.setup()
  with pytest.raises(failures.StepError) as caught:
    list(step.process(0))
  found = failures.find(RuntimeError(str(caught.value)))
  assert isinstance(found, errors.DataError)


def test_workers_that_hand_over_in_a_store_read_the_dataset_there(
  workdir, scored, tmp_path, monkeypatch
):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  place = objects_lib.Objects('memory://batch_inference_test')
  flags = [f'--temp_location={place.address}/tmp']
  with pytest.raises(errors.ConfigError, match='do not see .*give the address'):
    scoring.score(workdir, tmp_path / 'refused', beam_options=flags)
  publishing.publish(workdir, f'{place.address}/run')
  scoring.score(
    workdir,
    tmp_path / 'there',
    dataset=f'{place.address}/run',
    beam_options=flags,
  )
  there, here = (
    raw_data.file_bytes(f) for f in (tmp_path / 'there', scored[0])
  )
  assert there == here
  assert not place.list('tmp')
