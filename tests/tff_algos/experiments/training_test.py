"""Training again in a workdir: resumed, refused, cleaned up."""

import dataclasses
import functools
import re
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from configs.fed_avg import private
from configs.fed_soft import synthetic
from tests.testing import csv_files, nights, regressions
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors, sealed_json
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import (
  datasets,
  evaluating,
  experiment,
  session,
  training,
)
from tff_algos.privacy import accounting, mechanism
from tff_algos.runtimes.distributed import process_cluster
from tff_algos.training import continuation, loop, restarts, selection


@pytest.fixture(scope='module')
def dataset(trained_regressions):
  return trained_regressions.folder / 'dataset'


def test_more_rounds_go_on_and_fewer_are_refused(
  dataset, tmp_path, caplog, capfd
):
  shutil.copytree(dataset, tmp_path / 'dataset')
  assert training.train(regressions.config(num_rounds=1), tmp_path) == 1
  progress = capfd.readouterr().err
  assert 'personalized validation mse=' in progress
  assert 'training loss=' in progress
  assert 'was built with' not in caplog.text
  same = regressions.config(num_rounds=1)
  sharded = dataclasses.replace(same.dataset, num_shards=5)
  with caplog.at_level('INFO', logger='absl'):
    assert (
      training.train(dataclasses.replace(same, dataset=sharded), tmp_path) == 1
    )
  assert f'{tmp_path} is at round 1, the last: nothing' in caplog.text
  assert 'config.dataset.num_shards is 5, but' in caplog.text
  assert regressions.num_rows(tmp_path) == 1 + 2
  assert training.train(regressions.config(num_rounds=2), tmp_path) == 2
  assert regressions.num_rows(tmp_path) == 1 + 3
  before = (tmp_path / 'config.json').read_bytes()
  with pytest.raises(
    errors.ConfigError,
    match=r'num_rounds is 1, but .* trained for 2 rounds.*num_rounds=2 or more',
  ):
    training.train(regressions.config(num_rounds=1), tmp_path)
  assert regressions.num_rows(tmp_path) == 1 + 3
  assert (tmp_path / 'config.json').read_bytes() == before


def test_a_dataset_of_another_config_is_told(trained_regressions, caplog):
  config = trained_regressions.config.dataset
  with dataset_lib.FederatedDataset.open(
    trained_regressions.folder / 'dataset'
  ) as built:
    training._check_recipe(config, built)
    assert not caplog.text
    splits = dataclasses.replace(config.splits, split_by='time', time_gap=5.0)
    training._check_recipe(dataclasses.replace(config, splits=splits), built)
    assert 'config.dataset.splits.split_by is time, but' in caplog.text
    caplog.clear()
    given = {**config.source.options, 'num_features': 3}
    source = dataclasses.replace(config.source, options=given)
    other = dataclasses.replace(config, source=source, fitted_from='elsewhere')
    training._check_recipe(other, built)
    assert caplog.messages == [
      'config.dataset.source.options.num_features is 3, but '
      f'{built.path} was built with 10, and is used as it is. To train by the '
      'config, build the dataset again with binaries.preprocess, in another '
      '--workdir if this one has checkpoints'
    ]
    caplog.clear()
    built.address = 's3://bucket/digits'
    training._check_recipe(other, built)
    assert not caplog.text


def test_the_last_round_has_personalized_models_of_its_own(caplog):
  def check(interval, first, last, *, patience=0, privacy=(), **options):
    section = options
    if 'name' not in options:
      section = {
        **{'name': 'ditto', 'personalization_interval': interval},
        **{'schedule': 'after', **options},
      }
    opened = types.SimpleNamespace(
      config=types.SimpleNamespace(
        algorithm=algorithms.parse_config(section),
        privacy=mechanism.PrivacyConfig(*privacy),
      ),
      parent=types.SimpleNamespace(round_num=first) if first else None,
      training=loop.TrainingConfig(
        num_rounds=last,
        evaluation_interval=10,
        selection=selection.SelectionConfig(patience=patience),
      ),
    )
    training._check_personalization(opened)

  for fits in ((30, 0, 30), (10, 30, 40), (1, 17, 47)):
    check(*fits)
  check(30, 0, 20, schedule='beside')  # Not an option of this schedule.
  check(20, 0, 40, patience=2)
  # Noise for all rounds, noise without a budget, and a training every round.
  check(20, 0, 40, privacy=(0.0, 8.0))
  check(20, 0, 40, privacy=(0.0, 8.0, 1e-5, 50))
  check(20, 0, 40, privacy=(1.0, 0.0, 1e-5, 20))
  check(1, 0, 40, privacy=(1.0, 8.0))
  check(0, 0, 40, name='partial_fed_avg')  # Never, which is its default.
  assert not caplog.text
  text = (
    'rounds 1 to 20 .* in no round of them; set a divisor of 20, such as 20'
  )
  with pytest.raises(errors.ConfigError, match=text):
    check(30, 0, 20)
  with pytest.raises(errors.ConfigError, match='31 to 40 .* such as 10'):
    check(30, 30, 40)
  with pytest.raises(errors.ConfigError, match='patience .* a multiple of it'):
    check(20, 0, 20, patience=1)
  for privacy in ((1.0, 8.0), (0.0, 8.0, 1e-5, 39)):
    caplog.clear()
    check(20, 0, 40, privacy=privacy)
    assert re.search(
      'is 20: with config.privacy.target_epsilon 8 the run may end before it, '
      '.*noise_multiplier 0 and .*num_rounds 0 or at least 40',
      caplog.text,
    )
  caplog.clear()
  partial = {'name': 'partial_fed_avg', 'personalization_interval': 50}
  text = "1 to 40 all clients' personalized models are trained in no round"
  with pytest.raises(errors.ConfigError, match=text):
    check(0, 0, 40, **partial)
  with pytest.raises(errors.ConfigError, match='patience .* a multiple of it'):
    check(0, 0, 50, patience=4, **partial)
  atoms = {'own': 'atoms', 'in_every_round': False, 'refit_interval': 200}
  with pytest.raises(
    errors.ConfigError, match='local_atoms.refit_interval is 200: .* no round'
  ):
    check(0, 0, 20, name='filter_decomposition', local_atoms=atoms)
  check(30, 17, 47)
  assert 'trained last in round 30; set a divisor of 47, such as 1' in (
    caplog.text
  )


@pytest.mark.parametrize(('num_examples', 'is_shown'), [(3, True), (0, False)])
def test_validation_is_shown_if_there_are_examples(num_examples, is_shown):
  dataset = types.SimpleNamespace(
    num_examples=lambda split: np.array([0, num_examples])
  )
  shown = training.shown_metrics(dataset)
  assert shown['train/loss'] == 'training loss'
  name = 'participating/validation/personalized/accuracy'
  assert (name in shown) == is_shown


@pytest.mark.parametrize(
  ('options', 'num_examples', 'is_refused'),
  [
    ({'patience': 2}, 0, True),
    ({'patience': 2, 'metric': 'a/validation/loss'}, 0, True),
    ({'patience': 2, 'metric': 'a/train/loss'}, 0, False),
    ({'patience': 2}, 3, False),
    ({}, 0, False),
  ],
)
def test_patience_needs_scores_to_wait_for(options, num_examples, is_refused):
  opened = types.SimpleNamespace(
    training=loop.TrainingConfig(
      num_rounds=1, selection=selection.SelectionConfig(**options)
    ),
    dataset=types.SimpleNamespace(
      num_examples=lambda split: np.array([0, num_examples])
    ),
    evaluator=types.SimpleNamespace(
      selection_metric='participating/validation/personalized/accuracy'
    ),
  )
  if is_refused:
    with pytest.raises(errors.ConfigError, match=r'patience is 2, .*_ratio'):
      training._check_patience(opened)
  else:
    training._check_patience(opened)


def test_a_run_that_would_wait_in_vain_is_refused(
  dataset, tmp_path, monkeypatch
):
  shutil.copytree(dataset, tmp_path / 'dataset')
  sizes = dataset_lib.FederatedDataset.num_examples
  monkeypatch.setattr(
    dataset_lib.FederatedDataset,
    'num_examples',
    lambda self, split, *group: (
      sizes(self, split, *group) * (split != 'validation')
    ),
  )
  config = regressions.config(num_rounds=1, selection={'patience': 2})
  with pytest.raises(errors.ConfigError, match='no client has validation'):
    training.train(config, tmp_path)
  assert not (tmp_path / 'metrics.csv').exists()


def test_several_processes_continue_no_run_not_even_one_that_was_started(
  tmp_path,
):
  parent = continuation.Parent('../parent', 2, 'version')
  sealed_json.write(tmp_path / 'parent.json', parent._asdict())
  two = process_cluster.Cluster(('127.0.0.1:1',) * 2)
  with pytest.raises(errors.ConfigError, match='leave TF_CONFIG out'):
    training.train(regressions.config(), tmp_path, two)


def test_a_parent_trained_on_other_classes_is_refused(tmp_path, caplog):
  nights.write_day(tmp_path / 'raw', nights.FIRST)
  config = nights.parse(tmp_path / 'raw')
  parent, child = tmp_path / 'parent', tmp_path / 'child'
  datasets.build(config.dataset, parent)
  training.train(config, parent)
  other = nights.parse(
    tmp_path / 'raw',
    dataset={'source': {'options': {'classes': ('yes', 'no')}}},
  )
  datasets.build(other.dataset, child)
  with pytest.raises(errors.DataError, match='encode raw data differently: cl'):
    training.train(other, child, parent=parent)
  assert not (child / 'parent.json').exists()
  # Another version is the current one now, but the parent's is still there.
  datasets.build(other.dataset, parent)
  with pytest.raises(errors.DataError, match='encode raw data differently: cl'):
    training.train(other, child, parent=parent)
  shutil.rmtree(parent / 'dataset')
  with caplog.at_level('WARNING', logger='absl'):
    training.train(other, child, parent=parent)
  assert 'is not checked: its dataset version' in caplog.text


def test_other_config_in_a_used_workdir_is_refused(dataset, tmp_path):
  shutil.copytree(dataset, tmp_path / 'dataset')
  training.train(regressions.config(num_rounds=1), tmp_path)
  files = [tmp_path / name for name in ('metrics.csv', 'config.json')]
  before = [path.read_bytes() for path in files]
  config = synthetic.get_config('smoke')
  with pytest.raises(
    errors.CheckpointError,
    match='algorithm.local_training.num_local_epochs: 1 there, 10 now',
  ):
    training.train(experiment.parse(config), tmp_path)
  assert [path.read_bytes() for path in files] == before
  assert not (tmp_path / '.lock').exists()


def test_half_written_checkpoint_is_removed(dataset, tmp_path):
  shutil.copytree(dataset, tmp_path / 'dataset')
  half = tmp_path / 'checkpoints' / '.writing_000001'
  half.mkdir(parents=True)
  (half / 'server_state.npz').write_bytes(b'half')
  training.train(regressions.config(num_rounds=1), tmp_path)
  assert not half.exists()


def test_analyses_repeat_the_restart_that_was_trained(
  dataset, tmp_path, monkeypatch
):
  shutil.copytree(dataset, tmp_path / 'dataset')
  monkeypatch.setattr(restarts, 'choose', lambda *_: (7, {}))
  config = regressions.config(
    num_rounds=1,
    dropout_rate=0.3,
    restarts={'num_restarts': 2, 'num_rounds': 1},
  )
  training.train(config, tmp_path)
  with session.open_session(config, tmp_path) as opened:
    _, trained = opened.restore()
  with session.open_session(config, tmp_path) as opened:
    repeated, _ = opened.run_round(opened.initial_state(), 1)
  tf.nest.map_structure(np.testing.assert_array_equal, repeated, trained)


def _private(rounds, **options):
  config = private.get_config('smoke')
  config.runtime.name = 'debug'
  config.dataset.partition.num_clients = 6
  config.training.update(num_rounds=rounds, evaluation_interval=100)
  config.privacy.update(options)
  return experiment.parse(config)


def _train_private(folder, rounds, parent='', **options):
  """Returns the number of rounds, and epsilon after each of them."""
  parsed = _private(rounds, **options)
  datasets.build(parsed.dataset, folder)
  done = training.train(parsed, folder, parent=parent)
  rows = csv_files.read(folder / 'metrics.csv')
  return done, [float(row['privacy/epsilon'] or 0) for row in rows]


@pytest.mark.parametrize(
  'changed',
  [{'metric': 'participating/test/personalized/loss'}, {'mode': 'max'}],
)
def test_a_run_keeps_the_rule_of_its_best_round(dataset, tmp_path, changed):
  shutil.copytree(dataset, tmp_path / 'dataset')
  training.train(regressions.config(num_rounds=1), tmp_path)
  before = (tmp_path / 'config.json').read_bytes()
  with pytest.raises(
    errors.ConfigError,
    match=r'1 rounds with the smallest participating/validation/personalized/m',
  ):
    training.train(
      regressions.config(num_rounds=2, selection=changed), tmp_path
    )
  assert (tmp_path / 'config.json').read_bytes() == before
  # The same rule by its name, and another patience.
  same = {
    'metric': 'participating/validation/personalized/mse',
    'mode': 'min',
    'patience': 3,
  }
  assert (
    training.train(regressions.config(num_rounds=2, selection=same), tmp_path)
    == 2
  )


def test_a_run_keeps_its_dropout_rate(dataset, tmp_path):
  shutil.copytree(dataset, tmp_path / 'dataset')
  training.train(regressions.config(num_rounds=1, dropout_rate=0.3), tmp_path)
  with pytest.raises(
    errors.CheckpointError, match=r'dropout_rate: 0\.3 there, absent now'
  ):
    training.train(regressions.config(num_rounds=2), tmp_path)


def test_private_training_ends_with_its_budget_and_counts_on(tmp_path, caplog):
  run = functools.partial(_train_private, noise_multiplier=2.0)
  with caplog.at_level('INFO', logger='absl'):
    done, spent = run(tmp_path / 'budget', 9, target_epsilon=2.5)
  assert 1 < done < 9
  assert 'another round would exceed config.privacy.target_epsilon' in (
    caplog.text
  )
  assert 'config.seed=0 can be guessed' in caplog.text
  assert spent[0] == 0
  assert spent[1:] == [
    accounting.epsilon(2.0, accounting.Participation(0.5), n, 1e-5)
    for n in range(1, done + 1)
  ]
  # A run that continues another one counts its releases, too.
  first, _ = run(tmp_path / 'first', 1, target_epsilon=0.0)
  with caplog.at_level('INFO', logger='absl'):
    _, more = run(
      tmp_path / 'second', 1, str(tmp_path / 'first'), target_epsilon=0.0
    )
  assert first == 1
  assert f'Trained 1 rounds in {tmp_path / "second"}.' in caplog.text
  assert more[-1] == spent[2]
  # A summary has that of its round.
  config = _private(1, noise_multiplier=2.0, target_epsilon=0.0)
  evaluating.evaluate(config, tmp_path / 'first')
  summary = sealed_json.read(tmp_path / 'first/evaluation/summary.json', '')
  assert summary['last']['privacy/epsilon'] == spent[1]
  with pytest.raises(errors.ConfigError, match='its privacy is'):
    run(
      tmp_path / 'third',
      1,
      str(tmp_path / 'first'),
      target_epsilon=0.0,
      sampling_prob=0.25,
    )


def test_solved_noise_is_for_the_rounds_of_all_runs(tmp_path):
  run = functools.partial(
    _train_private, noise_multiplier=0.0, target_epsilon=2.5
  )
  # Noise for one round is too little for two.
  run(tmp_path / 'one', 1)
  with pytest.raises(
    errors.ConfigError, match=r"'num_rounds': 1, .* says .*'num_rounds': 2, "
  ):
    run(tmp_path / 'next', 1, str(tmp_path / 'one'))
  run(tmp_path / 'first', 1, num_rounds=2)
  done, spent = run(
    tmp_path / 'second', 1, str(tmp_path / 'first'), num_rounds=2
  )
  assert done == 2
  assert 2.49 < spent[-1] <= 2.5


@pytest.mark.parametrize(
  ('changed', 'text'),
  [
    ({'attack': {'name': 'zero', 'fraction': 0.5}}, 'attack.name is'),
    ({'training': {'selection': {'patience': 2}}}, 'selection.patience is 2'),
    (
      {'training': {'restarts': {'num_restarts': 2, 'num_rounds': 1}}},
      'num_restarts is 2',
    ),
    ({'training': {'dropout_rate': 0.1}}, 'training.dropout_rate is 0.1'),
  ],
)
def test_choices_by_clients_data_are_refused_in_private_training(changed, text):
  config = private.get_config('smoke')
  config.update(changed)
  with pytest.raises(errors.ConfigError, match=text):
    experiment.parse(config)
