"""No two purposes share randomness, in any algorithm, model, source or program.

Draws are recorded by what they are a function of (`testing.streams`). A second
draw from one stream is listed here with its reason, or it is a defect.
"""

import ast
import collections
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from pipelines.sources import registry as sources
from tests.testing import (
  contract,
  raw_sources,
  streams,
  surveys,
  tiny_convolution,
  toys,
)
from tff_algos.adversaries import attacks
from tff_algos.algorithms import registry
from tff_algos.models import registry as models
from tff_algos.numerics import unit_dropout
from tff_algos.privacy import mechanism, private_algorithm
from tff_algos.runtimes import debug_runtime
from tff_algos.training import loop

_TRAINING = {
  'num_local_epochs': 2,
  'batch_size': 4,
  'augmentation': 'crop_and_flip',
}
_ENVELOPE_TRAINING = {
  'num_local_steps': 2,
  'batch_size': 4,
  'num_proximal_steps': 1,
}
# The contract's options, and what else draws. Case -> options, with the name of
# the algorithm where it is not the case's.
_CASES = {
  **{name: {} for name in registry.ALGORITHMS},
  'cmfl': {
    'committee': {'active_rate': 1.0, 'selection': 'random'},
  },
  'cmfl, last gradient': {'name': 'cmfl', 'upload': 'last_gradient'},
  'fed_em': {'initialization': {'mode': 'k-means++', 'num_candidates': 3}},
  'fed_soft': {'initial_local_models': 'independent'},
  'fed_soft, private': {
    'name': 'fed_soft',
    'selection': 'weighted_full',
    'private': True,
  },
  'ifca': {'initialization': {'mode': 'warm_start', 'num_rounds': 1}},
  'per_fed_avg, hessian_free': {
    'name': 'per_fed_avg',
    'variant': 'hessian_free',
  },
  'pfedkm': {'k_means': {'num_restarts': 2}},
  'ppfl': {
    'membership': {'batch_size': 4, 'num_epochs': 2},
    'laplacian': {'weight': 0.01, 'count_noise': 1.0},
  },
  'ppfl, random block': {
    'name': 'ppfl',
    'cohort_size': 4,
    'schedule': 'random_block',
    'membership': {'batch_size': 4},
  },
}
# Whole batches: padding draws, too, for a row that is drawn for anyway.
_SIZES = (4, 0, 4, 8, 4)
_NUM_ROUNDS = 2

# Function -> why what it calls draws in a round again what it drew before. It
# must be the same line that does: two lines of what it calls share nothing.
_AGAIN = {
  'algorithms/l2gd.py:_build_training': (
    'the lengths of a round are sent to clients, and counted by the server'
  ),
  'core/model.py:Model.map_stacked': (
    'all cluster models drop the same units of an example'
  ),
  'stages/client/gradients.py:difference_product': (
    'a difference of gradients of one function'
  ),
  'stages/client/moreau_envelope.py:_build_gradient': (
    'a solve, and the measurement after the last, are of one function'
  ),
  'stages/client/batches.py:draw_steps': (
    'many orders or one, by the number of examples; a batch reads one of them'
  ),
}
# The same, in another round or for another block of examples.
_ALWAYS = {
  'algorithms/cmfl/consensus/authentication.py:simulated_keys': 'the keys are those of a run',
  'algorithms/pfedkm/regrouping.py:cluster_uploads': (
    'k-means has one seed in all rounds, on which the paper bases its claim that '
    'the partition converges'
  ),
  'adversaries/malicious.py:draw': 'malicious clients are those of a run',
  'pipelines/sources/linear_regression.py:LinearRegression.thetas': (
    'the parameters are those of a dataset'
  ),
}
# Makes the orders of `train` again, and reads the batch that follows.
_NEXT_BATCH = re.compile(r'local_training.py:next_batch:\d+ > \S*:draw_batches')


def _model():
  """Returns a network in factors that drops units."""

  def activate(hidden):
    return unit_dropout.drop(tf.reshape(tf.nn.relu(hidden), [-1, 8]), 0, 0.5)

  return tiny_convolution.build(activation=activate)


def _build(case):
  options = dict(_CASES[case])
  is_private = options.pop('private', False)
  section = contract.section(options.pop('name', case))
  if section['name'] in contract.OTHER_TRAINING:
    section['local_training'] = _ENVELOPE_TRAINING
  elif 'local_training' in section:
    section['local_training'] = _TRAINING
  if 'local_atoms' in section:
    section['local_atoms'] = {
      **section['local_atoms'],
      'num_refit_epochs': 1,
      'local_training': _TRAINING,
    }
  name, parsed = registry.parse_config({**section, **options})
  built = registry.ALGORITHMS[name].build(_model(), parsed)
  privacy = mechanism.PrivacyConfig(noise_multiplier=float(is_private))
  facts = private_algorithm.Facts(4, _NUM_ROUNDS, '')
  return private_algorithm.make_private(built, privacy, facts)


@pytest.fixture
def eagerly():
  tf.config.run_functions_eagerly(True)
  yield
  tf.config.run_functions_eagerly(False)


def _record_run(algorithm, folder):
  """Returns the streams of the server's first state, a client's, and rounds."""
  source = contract.build_source(_SIZES)
  num_clients = source.population.num_clients
  runtime = debug_runtime.DebugRuntime(algorithm, num_clients)
  with streams.recorded() as of_server:
    state = loop.initial_server_state(algorithm, num_clients, 0)
  with streams.recorded() as of_client:
    store = loop.build_store(algorithm, source.population, 0, folder, 'memory')
  rounds = []
  for round_num in range(1, _NUM_ROUNDS + 1):
    with streams.recorded() as of_round:
      state, _ = loop.run_round(
        algorithm, runtime, source, store, state, round_num, 0, 0.1
      )
    store.commit()
    # A first state is made anew whenever it is asked for.
    rounds.append(
      {
        stream: kept
        for stream, places in of_round.items()
        if (
          kept := [p for p in places if 'loop.py:initial_client_state' not in p]
        )
      }
    )
  return of_server, of_client, *rounds


def _assert_nothing_is_shared(of_server, of_client, *rounds):
  """Checks that first states and rounds share no stream, nor parts of them.

  Only the first states may have streams in common: many start from one model.
  """
  for found in (of_server, of_client, *rounds):
    assert _shared(found, _AGAIN | _ALWAYS) == {}
  between = collections.defaultdict(list)
  for found in ({**of_server, **of_client}, *rounds):
    for stream, places in found.items():
      between[stream].append(places[0])
  assert _shared(between, _ALWAYS) == {}


def _shared(found, reasons):
  """Returns stream -> the places that share it without a reason."""
  shared = {}
  for stream, places in found.items():
    places = [place for place in places if not _NEXT_BATCH.search(place)]
    below = {_below(place, reasons) for place in places}
    if len(places) > 1 and (len(below) > 1 or None in below):
      shared[stream] = places
  return shared


def _below(place, functions):
  """Returns the part of a place below one of these functions, None without."""
  chain = place.split(' > ')
  for i, function in reversed([*enumerate(chain)]):
    if function.startswith(tuple(functions)):
      return ' > '.join(chain[i + 1 :])
  return None


@pytest.mark.usefixtures('eagerly')
@pytest.mark.parametrize('case', _CASES)
def test_no_two_draws_of_a_run_share_a_stream(case, tmp_path):
  found = _record_run(_build(case), tmp_path)
  for of_round in found[2:]:
    assert {'host', 'hash'} <= {kind for kind, *_ in of_round}
  _assert_nothing_is_shared(*found)


def test_every_algorithm_is_run():
  assert {*registry.ALGORITHMS} <= {*_CASES}


@pytest.mark.usefixtures('eagerly')
def test_noise_of_attackers_shares_no_stream(tmp_path):
  config = attacks.AttackConfig('gaussian_noise', client_ids=('c000', 'c003'))
  is_attacker = np.arange(len(_SIZES)) % 3 == 0
  attacked = attacks.attack(_build('fed_avg'), config, is_attacker)
  found = _record_run(attacked, tmp_path)
  assert any('add_noise' in places[0] for places in found[-1].values())
  _assert_nothing_is_shared(*found)


# Case -> section of a model.
_MODELS = {
  **{name: {'name': name} for name in models.MODELS},
  'alexnet': {'name': 'alexnet', 'image_side': 63},
  **{
    f'atoms, {atom_init}': {
      'name': 'letters_cnn',
      'decomposition': {'num_atoms': 3, 'atom_init': atom_init},
    }
    for atom_init in ('normal', 'uniform', 'fourier_bessel')
  },
  'low rank': {'name': 'letters_cnn', 'low_rank': {'layers': 'all_but_last'}},
}
_TAKE_WORDS = ('transformer', 'character_lstm', 'word_lstm')


def _build_model(section):
  inputs = {'input_shape': (16, 16, 1)}
  if section['name'] in _TAKE_WORDS:
    inputs = {'input_shape': (4,), 'input_dtype': tf.int32}
    if section['name'] == 'transformer':
      inputs['label_shape'] = (4,)
    else:
      inputs |= {'vocabulary': ('a', 'b'), 'special_ids': {'padding': 0}}
  is_regression = section['name'] == 'linear_regression'
  task = 'regression' if is_regression else 'classification'
  num_outputs = 1 if is_regression else 3
  return toys.build(section, num_outputs=num_outputs, task=task, **inputs)


@pytest.mark.parametrize('case', _MODELS)
def test_no_two_weights_of_a_model_share_a_stream(case, monkeypatch):
  model = _build_model(_MODELS[case])
  for name in streams.STATELESS:  # What it draws is not looked at.
    monkeypatch.setattr(
      tf.random, name, lambda shape, *args, **kwargs: tf.zeros(shape)
    )
  with streams.recorded() as found:
    model.initialize(tf.constant([3, 7]))
  assert found
  assert {s: places for s, places in found.items() if len(places) > 1} == {}


@pytest.mark.parametrize('name', raw_sources.GENERATORS)
def test_no_two_draws_of_a_source_share_a_stream(name):
  source = sources.create(name, raw_sources.GENERATORS[name], 0)
  with streams.recorded() as found:
    for block in source.blocks():
      collections.deque(source.read(block), maxlen=0)
  assert _shared(found, _ALWAYS) == {}


@pytest.mark.parametrize('law', surveys.LAWS)
def test_no_two_draws_of_a_partition_share_a_stream(law):
  options = {'held_out_fraction': 0.1, 'test_ratio': 0.25}
  if law not in surveys.MIXING:
    options['split_by'] = 'client'
  survey = surveys.survey(300, client=np.array(['ann', 'bob', 'cid'] * 100))
  with streams.recorded() as found:
    surveys.make_law_plan(law, survey, splits=options)
  assert len(found) > 1
  assert _shared(found, {}) == {}


# Purpose -> why more than one line may name it.
_NAMED_AGAIN = {
  'cohort': 'the clients of a round, by whichever algorithm runs',
  'initialize': 'the first states, of the server and of each client',
}
# What takes a purpose -> which of its arguments that is.
_TAKES_PURPOSE = {
  'seeds.derive_seed': 1,
  'seeds.derive_seeds': 1,
  'seeds.numpy_generator': 1,
  'hashing.draw': 2,
  'hashing.draw_fraction': 2,
  'hashing.draw_lots': 2,
}


def _nodes(kind):
  """Yields file and node of all syntax of a kind near randomness."""
  root = pathlib.Path(__file__).parents[2]
  for room in ('tff_algos', 'pipelines', 'binaries'):
    for path in sorted((root / room).rglob('*.py')):
      text = path.read_text()
      if 'random' in text or 'seed' in text:
        for node in ast.walk(ast.parse(text)):
          if isinstance(node, kind):
            yield path.relative_to(root).as_posix(), node


def _calls():
  """Yields file, function and arguments of all calls near randomness."""
  for path, call in _nodes(ast.Call):
    yield path, ast.unparse(call.func), call.args


def test_a_purpose_is_named_in_one_place():
  named = collections.Counter()
  for _, name, arguments in _calls():
    position = _TAKES_PURPOSE.get(name)
    if position is not None:
      named[ast.unparse(arguments[position])] += 1
  spelled = {one for one in named if one.startswith(("'", "f'"))}
  assert len(spelled) > 30
  again = {one for one in spelled if named[one] > 1}
  assert again == {repr(purpose) for purpose in _NAMED_AGAIN}


# File -> why it has randomness of another kind.
_OF_OTHER_KINDS = {
  'pipelines/partitions/consecutive.py': 'draws as published code does',
  'pipelines/partitions/groups.py': 'draws as published code does',
  'tff_algos/core/seeds.py': 'makes all generators',
}


def test_all_randomness_can_be_recorded():
  known = {f'tf.random.{name}' for name in streams.STATELESS}
  known |= {'tf.random.fold_in', 'tf.random.split'}
  is_random = re.compile(r'((tf|np)\.)?random\.\w').match
  others = {
    path for path, name, _ in _calls() if is_random(name) and name not in known
  }
  assert others == {*_OF_OTHER_KINDS}


# Function -> why it hashes a seed.
_HASH_SEEDS = {
  'pipelines/examples/hashing.py:draw': 'its key is derived by `seeds`',
  'pipelines/sources/base.py:checksums': 'the checksum of a generated source',
  'tff_algos/core/seeds.py:_start': 'derives all seeds',
}


def test_no_seed_is_hashed_elsewhere():
  found = set()
  for path, function in _nodes(ast.FunctionDef):
    text = ast.unparse(function)
    if 'hashlib.' in text and 'seed' in text:
      found.add(f'{path}:{function.name}')
  assert found == {*_HASH_SEEDS}
