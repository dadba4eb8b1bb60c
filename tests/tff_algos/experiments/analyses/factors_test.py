"""The next round, repeated, and clients that do not exist in it."""

import dataclasses
import types

import numpy as np
import pytest

from configs.fed_soft import digits
from configs.filter_decomposition import personal_models
from tests.testing import contract, csv_files, factored, toys
from tff_algos.algorithms.filter_decomposition import latent_clients
from tff_algos.core import errors
from tff_algos.experiments import datasets, experiment, training
from tff_algos.experiments.analyses import factors
from tff_algos.numerics import factored_weights
from tff_algos.runtimes import debug_runtime
from tff_algos.runtimes import registry as runtimes
from tff_algos.training import loop

_SEED = 5
_SIZES = factors.Sizes(num_repeats=3, num_pairs=100, num_examples=5)


def _session(algorithm):
  population = factored.SOURCE.population
  state, _ = toys.initial_states(algorithm, population)
  return state, types.SimpleNamespace(
    algorithm=algorithm,
    runtime=debug_runtime.DebugRuntime(algorithm, len(contract.SIZES)),
    source=factored.SOURCE,
    store=loop.build_store(algorithm, population, _SEED, '', 'memory'),
    config=types.SimpleNamespace(runtime=runtimes.RuntimeConfig(name='debug')),
  )


def test_variance_is_that_of_the_kernels_of_repeated_rounds():
  algorithm = factored.build()
  state, opened = _session(algorithm)
  kernels = []
  for seed in range(_SEED, _SEED + 3):
    after, _, _ = toys.run_rounds(
      algorithm,
      factored.SOURCE,
      1,
      seed,
      start=toys.initial_states(algorithm, factored.SOURCE.population),
      runtime=opened.runtime,
    )
    plain = factored_weights.build_kernels(after.model_weights)
    kernels.append(plain['conv/kernel'].numpy().ravel())
  found = factors.variance(opened, 1, state, _SIZES)
  expected = np.var(kernels, axis=0).sum()
  np.testing.assert_allclose(found['variance'], expected, rtol=1e-4)
  assert expected > 1e-6


def test_more_clients_leave_less_variance_and_all_leave_none():
  """Full batches: nothing but the cohort is random."""
  training = {**factored.host()['local_training'], 'batch_size': 32}
  variances = []
  for cohort_size in (1, 3, 4):
    host = factored.host(cohort_size=cohort_size, local_training=training)
    state, opened = _session(factored.build(host))
    found = factors.variance(opened, 1, state, factors.Sizes(8, 1, 1))
    variances.append(found['variance'])
  assert variances[0] > variances[1] > 1e-6
  assert variances[2] < 1e-12


def test_repeated_rounds_leave_no_client_state():
  state, opened = _session(factored.build(local_atoms={'own': 'atoms'}))
  factors.variance(opened, 1, state, _SIZES)
  assert not opened.store.has_state().any()


def test_latent_clients_of_a_round_stand_beside_the_real_ones():
  """Three clients, six that do not exist; local atoms do not matter."""
  state, opened = _session(factored.build(local_atoms={'own': 'atoms'}))
  examples = factored.SOURCE.examples(3)
  found = factors.latent(opened, 1, state, examples, _SIZES)
  assert found['num_latent'] == 6
  # What the round's clients upload, by the host alone.
  host = factored.build()
  (call,) = host.plan_round(state, factored.SOURCE.population, 1, _SEED)
  losses = []
  for k in call.client_indices:
    alone = dataclasses.replace(call, client_indices=np.array([k], np.int32))
    one, _ = _session(host)
    after = toys.run_call(
      opened.runtime,
      host.phases['train'],
      one,
      [()] * 5,
      alone,
      (1, _SEED, factored.SOURCE),
    ).server_state
    model = host.cluster_model
    outputs = model.apply(after.model_weights, examples.x[:5])
    losses.append(model.example_losses(outputs, examples.y[:5]).numpy().mean())
  np.testing.assert_allclose(found['real_loss'], np.mean(losses), rtol=1e-4)
  assert 0 < abs(found['latent_loss'] - found['real_loss']) < 0.5
  assert 0 <= found['latent_score'] <= 1


def test_every_round_draws_latent_clients_of_its_own(monkeypatch):
  draw_pairs, numbers = latent_clients.draw_pairs, []

  def record(*sizes):
    numbers.append(sizes[-1].random())
    return draw_pairs(*sizes)

  monkeypatch.setattr(latent_clients, 'draw_pairs', record)
  state, opened = _session(factored.build())
  for round_num in (1, 2):
    factors.latent(
      opened, round_num, state, factored.SOURCE.examples(3), _SIZES
    )
  first, second = numbers
  assert first != second


@pytest.mark.parametrize(
  'options', [{'schedule': {'slow_period': 2}}, {'averaging': 'kernels'}]
)
def test_rounds_without_coefficients_have_no_latent_clients(options):
  state, opened = _session(factored.build(**options))
  examples = factored.SOURCE.examples(3)
  assert factors.latent(opened, 2, state, examples, _SIZES) == {}


def test_without_held_out_examples_latent_clients_are_not_measured():
  state, opened = _session(factored.build())
  nothing = types.SimpleNamespace(num_examples=0)
  assert factors.latent(opened, 1, state, nothing, _SIZES) == {}


@pytest.mark.verify
def test_a_row_for_every_state(tmp_path):
  values = personal_models.get_config('smoke')
  values.training.num_rounds = 2
  values.training.checkpoint_interval = 1
  values.training.num_kept_checkpoints = 1
  values.algorithm.schedule.slow_period = 3
  values.algorithm.host.local_training.batch_size = 64  # Few steps.
  values.runtime.name = 'debug'
  config = experiment.parse(values)
  datasets.build(config.dataset, tmp_path)
  training.train(config, tmp_path)
  rows = factors.measure(config, tmp_path, factors.Sizes(2, 3, 20))
  read = csv_files.read(tmp_path / 'evaluation' / 'factors.csv')
  assert [row['round'] for row in read] == ['0', '2']
  assert rows[0]['num_latent'] == 6
  assert rows[0]['variance'] > 0 and rows[0]['latent_loss'] > 0
  # The third round sends no coefficients.
  assert read[1]['latent_loss'] == ''
  own = csv_files.read(tmp_path / 'evaluation' / 'own_atoms.csv')
  # Three of ten clients took part in each round.
  names = [name for name in own[0] if name.startswith('distance_')]
  for name in names:
    assert 3 <= sum(float(row[name]) > 0 for row in own) <= 6
  assert len(own) == 10 and names
  atoms = csv_files.read(tmp_path / 'evaluation' / 'atoms.csv')
  assert len(atoms) == 9 * len(names) and 'layer' in atoms[0]


def test_networks_without_convolutions_are_refused(digits_dataset):
  values = digits.get_config('smoke')
  values.algorithm = {'name': 'fed_avg'}
  values.runtime.name = 'debug'
  with pytest.raises(
    errors.ConfigError, match="model.name is 'mlp', which has"
  ):
    factors.measure(experiment.parse(values), digits_dataset, _SIZES)


def test_other_servers_are_refused():
  config = experiment.parse(digits.get_config('smoke'))
  with pytest.raises(errors.ConfigError, match="name is 'fed_soft'"):
    factors.measure(config, 'nowhere', _SIZES)
