import contextlib
import dataclasses
import json
import types
from concurrent import futures

import numpy as np
import pytest

from configs.fed_soft import digits
from tests.testing import ports
from tff_algos.algorithms import registry as algorithms
from tff_algos.core import errors
from tff_algos.experiments import experiment
from tff_algos.privacy import private_algorithm
from tff_algos.rounds import phase_types
from tff_algos.runtimes.distributed import process_cluster, process_group
from tff_algos.training import loop


def _parse(**overrides) -> experiment.ExperimentConfig:
  """Parses the smoke config with some values at dotted keys replaced."""
  config = digits.get_config('smoke')
  with config.unlocked():
    for key, value in overrides.items():
      *sections, last = key.split('__')
      section = config
      for name in sections:
        section = section[name]
      section[last] = value
  return experiment.parse(config)


@pytest.fixture(scope='module')
def dataset(digits_dataset):
  with experiment.open_dataset(digits_dataset) as opened:
    yield opened


def test_an_algorithm_is_built_for_the_seed_of_the_run(monkeypatch):
  """Not for that of a restart: who is malicious stays the same in all."""
  seen = []
  monkeypatch.setattr(experiment, 'build_model', lambda *arguments: 'model')
  monkeypatch.setattr(
    algorithms,
    'build_algorithm',
    lambda *_, run_seed, **__: seen.append(run_seed),
  )
  dataset = types.SimpleNamespace(
    client_ids=('a', 'b'), schema=None, feature_spec=None
  )
  experiment.build_algorithm(_parse(seed=5), dataset)
  assert seen == [5]


def test_runtime_is_optional():
  config = digits.get_config('smoke')
  with config.unlocked():
    del config.runtime
  assert experiment.parse(config).runtime.name == 'vectorized'


@pytest.mark.parametrize(
  ('key', 'value', 'words'),
  [
    ('sead', 1, r"config has no key 'sead'; did you mean 'seed'\?"),
    ('algorithm__num_cluster', 2, "did you mean 'num_clusters'"),
    ('algorithm__name', 'fedsoft', "did you mean 'fed_soft'"),
    ('model__hidden', (3,), 'config.model has no key'),
    ('training__client_states', 'tape', 'config.training: client_states'),
    ('dataset__partition__law', '10-90', 'config.dataset.partition: law'),
    ('dataset__source__name', 'digit', 'digit'),
    ('seed', True, 'config.seed must be int'),
    ('seed', -1, 'seed must be an integer >= 0'),
    (
      'lr_schedule__rates',
      ('local_training.learning_rate',),
      r"rates must be one of .*, got 'local_training.learning_rate'",
    ),
  ],
)
def test_wrong_key_or_value_is_refused_by_name(key, value, words):
  with pytest.raises(errors.ConfigError, match=words):
    _parse(**{key: value})


def test_missing_section_is_named():
  config = digits.get_config('smoke')
  with config.unlocked():
    del config.training
  with pytest.raises(errors.ConfigError, match='config.training is missing'):
    experiment.parse(config)


def test_identity_has_what_decides_the_states(dataset):
  found = experiment.identity(_parse(), dataset)
  assert found['dataset_version'] == dataset.version
  assert found['seed'] == 0
  # With all defaults, and ready for JSON.
  assert found['algorithm']['local_training']['optimizer']['name'] == 'adam'
  assert json.loads(json.dumps(found))


@pytest.mark.parametrize(
  ('key', 'value', 'changes'),
  [
    ('seed', 1, True),
    ('model__hidden_sizes', (5,), True),
    ('algorithm__proximal_weight', 0.5, True),
    ('training__num_rounds', 99, False),
    ('training__checkpoint_interval', 1, False),
    ('training__client_states', 'disk', False),
    ('training__dropout_rate', 0.3, True),
    ('training__dropout_rate', 0.0, False),
    ('training__restarts', {'num_restarts': 2, 'num_rounds': 3}, True),
    # Nothing is tried.
    ('training__restarts', {'num_restarts': 1, 'num_rounds': 3}, False),
    ('runtime__name', 'tff', False),
    ('attack', {'name': 'zero', 'fraction': 0.2}, True),
    # Nobody attacks.
    ('attack', {'name': 'none', 'fraction': 0.2}, False),
    ('lr_schedule', {'after_rounds': (2,)}, True),
    # None falls.
    ('lr_schedule', {'factor': 0.5}, False),
    ('continuation', {'optimizer': 'anew'}, False),
    ('name', 'other', False),
  ],
)
def test_identity_changes_with_what_decides_the_states_alone(
  dataset, key, value, changes
):
  other = experiment.identity(_parse(**{key: value}), dataset)
  assert (other != experiment.identity(_parse(), dataset)) == changes


@pytest.mark.parametrize(
  'options', [{'optimizer': 'anew'}, {'keep_departed': 0}]
)
def test_noise_follows_from_the_options_of_continuation(dataset, options):
  """But a run that was started may go on with others."""
  config, other = (
    _parse(
      algorithm__selection='weighted_full',
      privacy__noise_multiplier=1.0,
      continuation=continuation,
    )
    for continuation in ({}, options)
  )
  assert experiment.identity(config, dataset) == experiment.identity(
    other, dataset
  )
  noise, others = (
    loop.initial_server_state(
      experiment.build_algorithm(one, dataset), len(dataset.client_ids), 0
    ).extra.noise_seed
    for one in (config, other)
  )
  assert noise.tolist() != others.tolist()


def test_spelling_out_a_default_is_the_same_experiment(dataset):
  config = digits.get_config('smoke')
  with config.unlocked():
    del config.algorithm.start  # Its default is 'own', as in the config.
  short = experiment.parse(config)
  assert experiment.identity(short, dataset) == experiment.identity(
    _parse(), dataset
  )


def test_model_and_algorithm_are_built_for_the_dataset(dataset):
  model = experiment.build_model(_parse(), dataset.schema, dataset.feature_spec)
  assert model.task == 'classification'
  assert model.input_shape == (8, 8, 1)
  assert model.num_outputs == 10
  algorithm = experiment.build_algorithm(
    _parse(algorithm__num_clusters=3), dataset
  )
  assert algorithm.num_clusters == 3


def _check(config, dataset):
  """Does what a runtime does first."""
  algorithm = experiment.build_algorithm(config, dataset)
  phase_types.check_algorithm(algorithm, len(dataset.client_ids))
  return algorithm


def test_an_algorithm_that_knows_its_clients_is_built_for_theirs(dataset):
  shares = ((0.9, 0.1),) * len(dataset.client_ids)
  options = {
    'algorithm__selection': 'weighted_full',
    'algorithm__fixed_importance': shares,
  }
  assert set(_check(_parse(**options), dataset).phases) == {'train'}
  options['algorithm__fixed_importance'] = shares[1:]
  text = f'a row for each of the {len(shares)} clients'
  with pytest.raises(errors.ConfigError, match=text):
    _check(_parse(**options), dataset)


@pytest.mark.parametrize(
  ('fitted', 'recipe', 'options', 'is_refused'),
  [
    ({'age': {'mean': 3.0}}, {}, {}, True),
    ({'age': {'mean': 3.0}}, {'fitted_from': 'd1'}, {}, False),
    ({'tokens': {'vocabulary': ['a']}}, {}, {'vocabulary_file': ''}, True),
    ({'tokens': {'vocabulary': ['a']}}, {}, {'vocabulary_file': 'w'}, False),
    ({}, {}, {}, False),
  ],
)
def test_private_training_refuses_encodings_fitted_on_its_data(
  monkeypatch, fitted, recipe, options, is_refused
):
  for owner, name in (
    (experiment, 'build_model'),
    (algorithms, 'build_algorithm'),
    (private_algorithm, 'make_private'),
  ):
    monkeypatch.setattr(owner, name, lambda *_, **__: 'built')
  dataset = types.SimpleNamespace(
    client_ids=('a', 'b'),
    num_examples=lambda _: np.ones(2),
    version='v',
    schema=None,
    manifest={'recipe': {**recipe, 'source': {'options': options}}},
    feature_spec=types.SimpleNamespace(fitted=fitted),
  )
  with contextlib.ExitStack() as stack:
    if is_refused:
      words = f'encoding of {next(iter(fitted))} is fitted .*fitted_from'
      stack.enter_context(pytest.raises(errors.ConfigError, match=words))
    experiment.build_algorithm(_parse(privacy__noise_multiplier=1.0), dataset)


def test_attackers_are_among_the_clients_of_the_dataset(dataset):
  config = _parse(attack={'name': 'sign_flip', 'fraction': 0.25})
  found = experiment.find_attackers(config, dataset)
  assert found.sum() == len(dataset.client_ids) // 4
  algorithm = experiment.build_algorithm(config, dataset)
  assert algorithm.phases['train'].client_input.is_attacker.shape == ()


def test_a_rule_that_the_clients_do_not_suffice_for_is_refused(dataset):
  options = {
    'algorithm__selection': 'weighted_full',
    'algorithm__aggregation': {'rule': 'krum', 'num_byzantine': 50},
  }
  with pytest.raises(errors.ConfigError, match='at least 103 clients'):
    _check(_parse(**options), dataset)


def test_model_for_another_task_is_refused(dataset):
  config = digits.get_config('smoke')
  with config.unlocked():
    config.model = {'name': 'linear_regression'}
  with pytest.raises(errors.ConfigError, match='regression.*classification'):
    experiment.build_algorithm(experiment.parse(config), dataset)


def test_alone_no_group_is_asked(dataset):
  with experiment.open_group(
    _parse(), dataset, process_cluster.ALONE, []
  ) as group:
    assert group is process_group.ALONE


def test_speeds_and_shards_are_of_all_processes(dataset):
  config = _parse(runtime__peer_speeds=(4.0, 1.0))
  with experiment.open_group(config, dataset, process_cluster.ALONE, []):
    pass
  three = process_cluster.Cluster(('127.0.0.1:1',) * 3)
  with pytest.raises(errors.ConfigError, match='for each of the 3 processes'):
    experiment.open_group(config, dataset, three, [])
  # The config may be of another dataset than the one that is open, of 2 shards.
  config = _parse(runtime__peer_shards=True, dataset__num_shards=3)
  text = f'{dataset.path} has 2: build it anew with a larger'
  with pytest.raises(errors.ConfigError, match=text):
    experiment.open_group(config, dataset, three, [])
  both = {'runtime__peer_shards': True, 'runtime__peer_speeds': (1.0, 2.0)}
  with pytest.raises(errors.ConfigError, match='dealt out by speed, or by'):
    _parse(**both)


@pytest.mark.parametrize(
  ('values', 'saved_rounds', 'words'),
  [
    ({'seed': 8}, [2], 'experiment.seed: 8 there, 7 here'),
    ({'training__num_rounds': 9}, [2], 'training.num_rounds: 9 there'),
    ({}, [2, 4], r'checkpoints: \[2, 4\] there, \[2\] here'),
    ({'runtime__peer_speeds': (4.0, 1.0)}, [2], r'speeds: \[4.0, 1.0\] there'),
  ],
)
def test_processes_must_run_the_same(dataset, values, saved_rounds, words):
  addresses = ports.free_addresses(2)

  def open_as(index, config, rounds):
    ours = process_cluster.Cluster(addresses, index)
    with experiment.open_group(config, dataset, ours, rounds):
      pass

  with futures.ThreadPoolExecutor() as pool:
    leader = pool.submit(open_as, 0, _parse(seed=7), [2])
    other = _parse(**{'seed': 7, 'runtime__name': 'tff', **values})
    pool.submit(open_as, 1, other, saved_rounds)
    with pytest.raises(errors.ConfigError, match=words) as caught:
      leader.result(60)
  assert 'runtime' not in str(caught.value)


def test_missing_dataset_is_refused(tmp_path):
  with pytest.raises(errors.DataError, match='binaries.preprocess'):
    experiment.open_dataset(tmp_path)


def test_a_workdir_refers_to_one_published_dataset(tmp_path, digits_dataset):
  workdir = tmp_path / 'run'
  experiment.refer_to_dataset(workdir, 'memory://bucket/nothing')
  experiment.refer_to_dataset(workdir, 'memory://bucket/nothing')
  with pytest.raises(errors.DataError, match='is published at memory://bucket'):
    experiment.open_dataset(workdir)
  for folder, address, words in (
    (workdir, 'memory://bucket/other', 'is a dataset already, another'),
    (digits_dataset, 'memory://bucket/other', 'is a dataset already, another'),
    (tmp_path, 'runs/digits/dataset', 'must be an address of an object store'),
  ):
    with pytest.raises(errors.ConfigError, match=words):
      experiment.refer_to_dataset(folder, address)


def test_a_model_of_numbers_takes_no_tokens(dataset, monkeypatch):
  tokens = dataclasses.replace(dataset.schema, x_dtype='int32')
  monkeypatch.setattr(dataset, 'schema', tokens)
  with pytest.raises(errors.ConfigError, match="'mlp' takes numbers, but"):
    experiment.build_model(_parse(), dataset.schema, dataset.feature_spec)
