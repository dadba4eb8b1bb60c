"""Tests of filter decomposition: rounds, reductions, plan and costs, bad input."""

import numpy as np
import pytest
import tensorflow as tf

from tests.testing import client_data, factored, toys
from tff_algos.algorithms import registry
from tff_algos.core import errors, seeds
from tff_algos.numerics import factored_weights, statistics

_POPULATION = factored.SOURCE.population


def _assert_equal(one, other):
  tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def _coefficients(state):
  return state.model_weights['conv/coefficients']


def _plain_host(section):
  return registry.build_algorithm(
    registry.parse_config(section), factored.model()
  )


@pytest.mark.parametrize(
  ('name', 'options'),
  [
    *((name, {}) for name in registry.HOSTS),
    # FedProx.
    ('fed_avg', {'proximal_weight': 0.1}),
  ],
)
def test_around_a_host_it_is_the_host_on_factors_bit_for_bit(name, options):
  """Also with local atoms: nothing of them leaks into the global model."""
  section = factored.host(name, **options)
  expected, states, _ = factored.run(_plain_host(section), 2)
  algorithm = factored.build(
    section, local_atoms={'own': 'atoms', 'refit_interval': 2}
  )
  state, own_states, outputs = factored.run(algorithm, 2)
  _assert_equal(state, expected)
  _assert_equal([one.host for one in own_states], states)
  # The refit runs on everybody who has examples.
  trained = [one.own.num_updates for one in own_states]
  assert min(trained[k] for k in (0, 2, 3, 4)) >= 1
  assert trained[1] == 0


@pytest.mark.parametrize('rate', [0.1, 3e38])
def test_own_atoms_that_diverge_do_not_reach_the_global_model(rate):
  """Who loses its own training still takes part in the round."""
  expected, _, _ = factored.run(_plain_host(factored.host()), 2)
  own_training = factored.host(learning_rate=rate)['local_training']
  algorithm = factored.build(
    local_atoms={'own': 'atoms', 'local_training': own_training}
  )
  state, _, outputs = factored.run(algorithm, 2)
  _assert_equal(state, expected)
  failed = statistics.value_of(outputs[-1].client_metrics['own_failed'])
  assert failed == (rate > 1)


def _uploads(algorithm):
  """Returns the weights that clients upload in round 1, and their sizes."""
  (call,) = algorithm.plan_round(None, _POPULATION, 1, 0)
  before, _ = toys.initial_states(algorithm, _POPULATION)
  phase = _plain_host(factored.host()).phases['train']
  before = tf.nest.map_structure(tf.constant, before)
  uploads, sizes = [], []
  for k in call.client_indices:
    examples = factored.SOURCE.examples(int(k))
    data = client_data.build(examples.x, examples.y)
    seed = seeds.derive_seed(0, 'train', 1, _POPULATION.client_ids[int(k)])
    output = phase.client_work(
      phase.make_message(before), (), (), data, tf.constant(seed)
    )
    uploads.append(output.result.local_weights)
    sizes.append(len(examples.y))
  return uploads, sizes


def _assert_mean(weights, uploads, sizes):
  for name, leaf in weights.items():
    mean = np.average([one[name] for one in uploads], axis=0, weights=sizes)
    np.testing.assert_allclose(leaf, mean, rtol=1e-5, atol=1e-6)


def test_a_round_averages_factors_apart():
  """Against NumPy's means of what each client uploads alone."""
  algorithm = factored.build()
  _, states = toys.initial_states(algorithm, _POPULATION)
  state, _, _ = factored.run(algorithm, 1)
  _assert_mean(state.model_weights, *_uploads(algorithm))
  assert states[0].own == ()


def test_slow_weights_change_in_full_rounds_alone():
  """Rounds 1 and 3 are full; discarding and freezing differ in what is sent."""
  section = factored.host()
  every, _, _ = factored.run(factored.build(section), 1)
  seen = {}
  for fast_rounds in ('discard', 'freeze', 'persist'):
    algorithm = factored.build(
      section, schedule={'slow_period': 2, 'fast_rounds': fast_rounds}
    )
    first, states, _ = factored.run(algorithm, 1)
    # The first round is that of Algorithm 1.
    _assert_equal(first, every)
    second, states, _ = factored.run(
      algorithm, 1, start=(first, states), first_round=2
    )
    _assert_equal(_coefficients(second), _coefficients(first))
    assert (
      np.abs(
        second.model_weights['conv/atoms'] - first.model_weights['conv/atoms']
      ).max()
      > 1e-4
    )
    third, _, _ = factored.run(
      algorithm, 1, start=(second, states), first_round=3
    )
    assert np.abs(_coefficients(third) - _coefficients(second)).max() > 1e-4
    seen[fast_rounds] = (second, third, states)
  # Atoms that are trained beside frozen coefficients go elsewhere.
  atoms = [one.model_weights['conv/atoms'] for one, _, _ in seen.values()]
  assert np.abs(atoms[0] - atoms[1]).max() > 1e-6
  # What persists of round 2 is uploaded in round 3.
  _assert_equal(seen['discard'][0], seen['persist'][0])
  discarded, persisted = (seen[name][1] for name in ('discard', 'persist'))
  changed = np.abs(_coefficients(discarded) - _coefficients(persisted)).max()
  assert changed > 1e-6
  versions = [int(one.slow.version) for one in seen['persist'][2]]
  assert set(versions) <= {-1, 0, 1}
  assert versions[1] == -1
  assert 1 in versions


def test_server_momentum_of_slow_weights_waits_for_full_rounds():
  """v of round 3 is 0.9 v of round 1 + what the clients moved in round 3."""
  server = {'name': 'sgd', 'learning_rate': 1.0, 'momentum': 0.9}
  algorithm = factored.build(
    factored.host(server_optimizer=server), schedule={'slow_period': 2}
  )
  first, second, third = (
    factored.run(algorithm, number)[0] for number in (1, 2, 3)
  )
  velocity = first.optimizer_slots['conv/coefficients']
  # A server without momentum says what the clients' mean is in round 3.
  plain = factored.build()
  start, states = toys.initial_states(plain, _POPULATION)
  start = start._replace(model_weights=second.model_weights)
  mean, _, _ = factored.run(plain, 1, start=(start, states), first_round=3)
  moved = _coefficients(second) - _coefficients(mean)
  np.testing.assert_allclose(
    _coefficients(third),
    _coefficients(second) - 0.9 * velocity - moved,
    1e-4,
    1e-6,
  )
  assert np.abs(velocity).max() > 1e-3


def test_kernels_as_control_give_the_mean_of_the_kernels():
  """Of those that the clients upload; not the product of the mean factors."""
  algorithm = factored.build(averaging='kernels')
  state, _, _ = factored.run(algorithm, 1)
  uploads, sizes = _uploads(algorithm)
  _assert_mean(
    factored_weights.build_kernels(state.model_weights),
    [factored_weights.build_kernels(one) for one in uploads],
    sizes,
  )
  product, _, _ = factored.run(factored.build(), 1)
  difference = np.abs(_kernel(state) - _kernel(product)).max()
  assert 1e-5 < difference < 0.1


def test_balanced_factors_have_the_product_of_the_mean_factors():
  """Factored anew: an atom and its coefficients have equal norms."""
  state, _, _ = factored.run(factored.build(averaging='balanced_factors'), 1)
  product, _, _ = factored.run(factored.build(), 1)
  np.testing.assert_allclose(_kernel(state), _kernel(product), atol=1e-5)
  np.testing.assert_allclose(_imbalances(state), 1, rtol=1e-4)
  assert np.abs(_imbalances(product) - 1).max() > 0.1


def _imbalances(state):
  atoms, coefficients = factored_weights.take_factors(
    state.model_weights, 'conv'
  )
  return np.linalg.norm(atoms, axis=(0, 1)) / np.linalg.norm(
    coefficients, axis=(1, 2)
  )


def _kernel(state):
  plain = factored_weights.build_kernels(state.model_weights)
  return np.asarray(plain['conv/kernel'], np.float64)


def test_with_one_client_a_round_it_is_the_mean_of_the_kernels():
  """From the start, and from what the first round made."""
  section = factored.host(cohort_size=1)
  product, control = (
    factored.build(section, averaging=one) for one in ('factors', 'kernels')
  )
  start = toys.initial_states(product, _POPULATION)
  for round_num in (1, 2):
    options = {'start': start, 'first_round': round_num}
    state, states, _ = factored.run(product, 1, **options)
    other, _, _ = factored.run(control, 1, **options)
    np.testing.assert_allclose(_kernel(state), _kernel(other), atol=1e-5)
    assert np.abs(_kernel(state) - _kernel(start[0])).max() > 1e-3
    np.testing.assert_array_equal(
      state.model_weights['dense/kernel'], other.model_weights['dense/kernel']
    )
    start = state, states


def test_local_atoms_serve_their_client_and_nobody_else():
  algorithm = factored.build(local_atoms={'own': 'atoms'})
  state, states, _ = factored.run(algorithm, 1)
  (call,) = algorithm.plan_round(None, _POPULATION, 1, 0)
  served = [
    algorithm.personalized_weights(state, one, k)
    for k, one in enumerate(states)
  ]
  for k, weights in enumerate(served):
    differs = not np.array_equal(
      weights['conv/atoms'], state.model_weights['conv/atoms']
    )
    assert differs == (k in call.client_indices)
    for name in ('conv/coefficients', 'dense/kernel'):
      np.testing.assert_array_equal(weights[name], state.model_weights[name])
  assert list(states[0].own.weights) == ['conv/atoms']
  uploaded = algorithm.phases['train'].aggregation
  assert set(uploaded) == {'local_atoms', 'local_coefficients', 'local_head'}


def test_local_atoms_are_kept_between_rounds():
  """A client that is drawn again goes on from its own."""
  algorithm = factored.build(
    factored.host(cohort_size=4), local_atoms={'own': 'atoms'}
  )
  first, states, _ = factored.run(algorithm, 1)
  forgotten = [
    one._replace(own=fresh.own)
    for one, fresh in zip(
      states, toys.initial_states(algorithm, _POPULATION)[1], strict=True
    )
  ]
  runs = [
    factored.run(algorithm, 1, start=(first, start), first_round=2)
    for start in (states, forgotten)
  ]
  (kept, kept_states, _), (lost, lost_states, _) = runs
  _assert_equal(kept, lost)
  assert kept_states[3].own.num_updates == 2
  assert lost_states[3].own.num_updates == 1
  assert not np.array_equal(
    kept_states[3].own.weights['conv/atoms'],
    lost_states[3].own.weights['conv/atoms'],
  )


def test_plan_names_phases_and_counts_what_travels():
  algorithm = factored.build(
    schedule={'slow_period': 2},
    local_atoms={'own': 'atoms', 'refit_interval': 2},
  )
  whole, fast = (
    3 * factored.NUM_ALL,
    3 * (factored.NUM_ATOMS + factored.NUM_HEAD),
  )
  (full_call,) = algorithm.plan_round(None, _POPULATION, 1, 0)
  assert (full_call.phase, full_call.cost) == ('train', (whole, whole, 6))
  fast_call, refit = algorithm.plan_round(None, _POPULATION, 2, 0)
  assert (fast_call.phase, fast_call.cost) == ('fast', (fast, fast, 6))
  assert set(algorithm.phases['fast'].aggregation) == {
    *('local_atoms', 'local_head')
  }
  assert refit.phase == 'refit'
  assert refit.client_indices.tolist() == [0, 2, 3, 4]
  assert refit.cost == (4 * factored.NUM_ALL, 0, 4)


def test_without_training_in_rounds_own_atoms_come_from_the_refit_alone():
  algorithm = factored.build(
    local_atoms={'own': 'atoms', 'in_every_round': False, 'refit_interval': 2}
  )
  assert not algorithm.phases['train'].uses_client_state
  _, states, _ = factored.run(algorithm, 1)
  assert all(one.own.num_updates == 0 for one in states)


def test_host_options_are_resolved_and_checked():
  _, options = registry.parse_config(
    {'name': 'filter_decomposition', 'host': {'name': 'fed_avg'}}
  )
  assert options.host.name == 'fed_avg'
  assert options.host.options.cohort_size == 10
  assert options == registry.parse_config({'name': 'filter_decomposition'})[1]


@pytest.mark.parametrize(
  ('section', 'text'),
  [
    (
      {'host': {'name': 'ifca'}},
      "config.algorithm.host.name 'ifca' is unknown",
    ),
    ({'host': {'name': 'fed_avg', 'cohort': 1}}, "did you mean 'cohort_size'"),
    ({'averaging': 'atoms'}, "averaging must be one of 'factors'"),
    (
      {'averaging': 'kernels', 'schedule': {'slow_period': 2}},
      "slow_period is 2, but averaging 'kernels' makes other factors",
    ),
    (
      {'host': factored.host(aggregation={'rule': 'median'})},
      "host 'fed_avg' takes no mean of its local_weights",
    ),
    (
      {'host': factored.host(aggregation={'mixes_nearest_neighbors': True})},
      'takes no mean .*, without mixes_nearest_neighbors',
    ),
    (
      {
        **{'host': factored.host(), 'averaging': 'kernels'},
        'local_atoms': {'own': 'atoms'},
      },
      "own is 'atoms', but averaging 'kernels' makes other factors",
    ),
    (
      {
        'host': factored.host(proximal_weight=0.1),
        'schedule': {'slow_period': 2, 'fast_rounds': 'persist'},
      },
      "fast_rounds is 'persist', .*'fed_avg' has proximal_weight 0.1, which",
    ),
  ],
)
def test_a_wrong_section_is_refused(section, text):
  section = {'name': 'filter_decomposition', **section}
  with pytest.raises(errors.ConfigError, match=text):
    registry.build_algorithm(registry.parse_config(section), factored.model())


def _server(name='sgd', learning_rate=1.0, momentum=0.0):
  options = {'name': name, 'learning_rate': learning_rate, 'momentum': momentum}
  return {'server_optimizer': options}


_KEPT = {'local_training': {'keeps_optimizer_state': True}}


def test_a_momentum_of_the_server_may_be_fast():
  factored.build(
    factored.host(**_server(momentum=0.9)), schedule={'slow_period': 2}
  )


@pytest.mark.parametrize(
  ('name', 'options', 'text'),
  [
    ('scaffold', {}, "host 'scaffold' lets clients keep what they learn"),
    ('fed_dc', {}, "host 'fed_dc' lets clients keep what they learn"),
    ('fed_dyn', {}, "host 'fed_dyn' lets clients keep what they learn"),
    ('fed_avg', _server('adam'), "has server_optimizer 'adam', which counts"),
    ('fed_avg', _KEPT, "whose clients keep no optimizer's state"),
  ],
)
def test_hosts_of_which_no_weights_can_stay_behind(name, options, text):
  with pytest.raises(errors.ConfigError, match=f'slow_period is 3, .*{text}'):
    factored.build(factored.host(name, **options), schedule={'slow_period': 3})


@pytest.mark.parametrize(
  ('name', 'options', 'text'),
  [
    ('scaffold', {}, 'lets clients keep what they learn of the factors'),
    ('fed_dc', {}, 'lets clients keep'),
    ('fed_dyn', {}, 'lets clients keep'),
    ('fed_avg', _server('adam'), 'goes from the old factors towards the new'),
    ('fed_avg', _server(learning_rate=0.5), 'goes from the old factors'),
    ('fed_avg', _server(momentum=0.9), 'goes from the old factors'),
    ('fed_avg', _KEPT, "lets .*, whose clients keep no optimizer's state"),
  ],
)
def test_hosts_that_remember_factors(name, options, text):
  text = f"averaging 'kernels' .* but host '{name}' {text}"
  with pytest.raises(errors.ConfigError, match=text):
    factored.build(factored.host(name, **options), averaging='kernels')


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    (
      {'averaging': 'balanced_factors'},
      "averaging 'balanced_factors' needs filter atoms",
    ),
    ({'local_atoms': {'own': 'atoms'}}, "own 'atoms' needs filter atoms"),
    (
      {'local_atoms': {'own': 'atoms_and_head'}},
      "own 'atoms_and_head' needs filter atoms",
    ),
    ({'schedule': {'slow_period': 2}}, "fast_groups names 'atoms', but the"),
  ],
)
def test_a_network_without_atoms_is_refused_where_they_are_needed(
  options, text
):
  section = {'name': 'filter_decomposition', 'host': factored.host(), **options}
  with pytest.raises(errors.ConfigError, match=text):
    registry.build_algorithm(registry.parse_config(section), toys.mlp())
