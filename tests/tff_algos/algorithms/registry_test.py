"""Tests of the algorithms by name, and fuzzed configs of all of them."""

import dataclasses
import re

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tests.testing import toys
from tff_algos.algorithms import registry
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.rounds import lr_schedule

_NAMES = sorted(registry.ALGORITHMS)


@pytest.mark.parametrize('name', _NAMES)
def test_every_algorithm_builds_with_its_defaults(name):
  # Of a single layer there are no features that FedPAC could align.
  model = toys.mlp() if name == 'fed_pac' else toys.linear(3)
  algorithm = registry.build_algorithm(
    registry.parse_config({'name': name}), model
  )
  assert algorithm.name == name
  assert algorithm.num_clusters >= 1
  for key, phase in algorithm.phases.items():
    assert phase.name == key
  server_state = algorithm.init_server_state(tf.constant([0, 1]), 4)
  weights = algorithm.cluster_weights(server_state)
  for leaf in tf.nest.flatten(weights):
    assert leaf.shape[0] == algorithm.num_clusters


@pytest.mark.parametrize(
  ('name', 'steps'),
  [('ifca', {'averaging': 'gradients'}), ('cmfl', {'upload': 'last_gradient'})],
)
def test_schedules_name_the_server_where_it_takes_the_steps(name, steps):
  def periods(options, **schedule):
    config = lr_schedule.LrScheduleConfig((2,), 0.5, **schedule)
    section = registry.parse_config({'name': name, **options})
    return registry.periods_of(section, config)

  assert len(periods({})) == 2
  rates = [
    one.server_learning_rate
    for one in periods(steps, rates=('server_learning_rate',))
  ]
  assert rates == [1.0, 0.5]
  with pytest.raises(errors.ConfigError, match='server, which decays only if'):
    periods(steps)
  section = registry.parse_config({'name': name, **steps})
  constant = lr_schedule.LrScheduleConfig()
  assert registry.periods_of(section, constant) == [section.options]


def test_who_takes_the_seed_of_the_run_gets_it(monkeypatch):
  seen, entry = [], registry.ALGORITHMS['cmfl']

  def build(model, options, run_seed):
    seen.append(run_seed)
    return entry.build(model, options, run_seed)

  changed = {**registry.ALGORITHMS, 'cmfl': entry._replace(build=build)}
  monkeypatch.setattr(registry, 'ALGORITHMS', changed)
  registry.build_algorithm(
    registry.parse_config({'name': 'cmfl'}), toys.linear(3), run_seed=7
  )
  assert seen == [7]


@pytest.mark.parametrize(
  ('section', 'text'),
  [
    ({'name': 'fedsoft'}, "name 'fedsoft' is unknown; did you mean 'fed_soft'"),
    (
      {},
      'config.algorithm.name None is unknown. Known: brain_torrent, cfl, cmfl',
    ),
    (
      {'name': 'fed_soft', 'num_cluster': 3},
      "config.algorithm has no key 'num_cluster'; did you mean 'num_clusters'",
    ),
    (
      {'name': 'fed_soft', 'local_training': {'optimizer': {'name': 'lion'}}},
      r"^config.algorithm.local_training.optimizer: name must be one of 'sgd'",
    ),
    (
      {'name': 'fed_avg', 'cohort_size': 2.5},
      r'^config.algorithm.cohort_size must be int, got 2.5 \(float\)',
    ),
    (
      {'name': 'fed_soft', 'importance_smoother': 1e-50},
      '^config.algorithm: importance_smoother must be > 0 for selection without',
    ),
  ],
)
def test_a_wrong_section_is_refused(section, text):
  with pytest.raises(errors.ConfigError, match=text):
    registry.parse_config(section)


def _paths(config_class, prefix=()):
  """Yields the path of every option, sections included."""
  for field in dataclasses.fields(config_class):
    path = (*prefix, field.name)
    yield path
    if dataclasses.is_dataclass(field.default):
      yield from _paths(type(field.default), path)


_OPTIONS = [
  (name, path)
  for name in _NAMES
  for path in _paths(registry.ALGORITHMS[name].config_class)
]
_VALUES = st.recursive(
  st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(10**320), 10**320),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(['own', 'adam', 'with_replacement', 'sgd']),
  ),
  lambda inner: st.one_of(
    st.lists(inner, max_size=2),
    st.dictionaries(
      st.one_of(st.text(max_size=8), st.integers()), inner, max_size=2
    ),
  ),
  max_leaves=4,
)


@hypothesis.settings(max_examples=300)
@hypothesis.given(st.sampled_from(_OPTIONS), _VALUES)
def test_any_value_of_any_option_is_read_or_refused_by_its_name(option, value):
  name, path = option
  section = value
  for key in reversed(path):
    section = {key: section}
  try:
    read_name, options = registry.parse_config({'name': name} | section)
  except errors.ConfigError as error:
    assert re.search(rf'\b{path[-1]}\b', str(error))
    return
  assert read_name == name
  plain = config_lib.to_dict(options)
  assert registry.parse_config({'name': name, **plain}) == (name, options)
  assert config_lib.config_hash(options) == config_lib.config_hash(plain)


@hypothesis.given(
  st.sampled_from(_NAMES),
  st.dictionaries(
    st.one_of(st.text(max_size=8), st.none()), _VALUES, min_size=1
  ),
)
def test_unknown_options_are_refused_by_name(name, extra):
  known = {path[0] for _, path in _OPTIONS} | {'name'}
  hypothesis.assume(not known & set(extra))
  with pytest.raises(errors.ConfigError) as refusal:
    registry.parse_config({'name': name, **extra})
  assert any(repr(key) in str(refusal.value) for key in extra)


@hypothesis.given(_VALUES)
def test_any_section_is_read_or_refused(section):
  try:
    registry.parse_config(section)
  except errors.ConfigError as error:
    assert str(error).startswith('config.algorithm')


@pytest.mark.parametrize(
  'name',
  [
    name
    for name, entry in registry.ALGORITHMS.items()
    if hasattr(entry.config_class, 'cohort_size')
  ],
)
def test_clients_are_sampled_from_those_with_examples(name):
  population = algorithm_lib.Population(tuple('abcd'), np.array([3, 0, 2, 4]))

  def first_call(cohort_size):
    section = registry.parse_config({'name': name, 'cohort_size': cohort_size})
    built = registry.ALGORITHMS[name].build(toys.mlp(), section.options)
    state = built.init_server_state(tf.constant([0, 1]), population.num_clients)
    return next(built.plan_round(state, population, 1, 0))

  np.testing.assert_array_equal(first_call(0).client_indices, [0, 2, 3])
  with pytest.raises(errors.ConfigError, match='cohort_size is 4, but only 3'):
    first_call(4)
