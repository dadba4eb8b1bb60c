"""Tests of when learning rates fall, and which."""

import json

import pytest

from tff_algos.algorithms import registry
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.rounds import lr_schedule

_RATE = 'local_training.optimizer.learning_rate'


def _options(name, **values):
  return config_lib.to_dict(registry.parse_config({'name': name, **values})[1])


def _flat(options, prefix=''):
  flat = {}
  for key, value in options.items():
    if isinstance(value, dict):
      flat |= _flat(value, f'{prefix}{key}.')
    else:
      flat[prefix + key] = value
  return flat


def _changed(periods):
  """Returns the keys whose values differ, with those of each period."""
  each = [_flat(options) for options in periods]
  return {
    key: [one[key] for one in each]
    for key in each[0]
    if any(one[key] != each[0][key] for one in each)
  }


def test_a_period_begins_after_its_round():
  config = lr_schedule.LrScheduleConfig((100, 150))
  found = [config.period(round_num) for round_num in (1, 100, 101, 150, 151)]
  assert found == [0, 0, 1, 1, 2]
  assert lr_schedule.LrScheduleConfig().period(10**6) == 0


@pytest.mark.parametrize(
  ('name', 'falling'),
  [
    ('fed_avg', {_RATE}),
    ('scaffold', {_RATE}),  # But not server_learning_rate.
    ('ditto', {_RATE, 'personal_training.optimizer.learning_rate'}),
    ('partial_fed_avg', {_RATE, 'private_training.optimizer.learning_rate'}),
    ('ppfl', {_RATE, 'membership.learning_rate'}),
    (
      'pfedme',
      {
        'local_training.client_learning_rate',
        'local_training.personal_learning_rate',
      },
    ),
    ('per_fed_avg', {'client_learning_rate'}),
    ('l2gd', {'client_learning_rate'}),
    ('filter_decomposition', {f'host.{_RATE}', f'local_atoms.{_RATE}'}),
  ],
)
def test_rates_of_clients_fall_unless_others_are_named(name, falling):
  options = _options(
    name, **({'host': {'name': 'scaffold'}} if name.startswith('fil') else {})
  )
  config = lr_schedule.LrScheduleConfig((2, 5), 0.5)
  periods = config.lower(options)
  assert len(periods) == 3
  assert periods[0] == options
  changed = _changed(periods)
  assert changed.keys() == falling
  for first, second, third in changed.values():
    assert (second, third) == (first / 2, first / 4)


def test_every_algorithm_has_rates_that_can_fall():
  config = lr_schedule.LrScheduleConfig((1,))
  for name in registry.ALGORITHMS:
    assert _changed(config.lower(_options(name)))


def test_the_rates_that_are_named_fall_alone():
  named = ('server_learning_rate', f'host.{_RATE}')
  host = {'name': 'scaffold', 'server_learning_rate': 2.0}
  for rates, expected in (
    ((f'host.{named[0]}',), {f'host.{named[0]}': [2.0, 1.0]}),
    ((named[1],), {named[1]: [0.1, 0.05]}),
  ):
    config = lr_schedule.LrScheduleConfig((3,), 0.5, rates)
    options = _options('filter_decomposition', host=host)
    assert _changed(config.lower(options)) == expected


def test_a_rate_of_none_stays_none():
  options = _options('pfedme', local_training={'client_learning_rate': 0.0})
  config = lr_schedule.LrScheduleConfig((3,))
  assert _changed(config.lower(options)).keys() == {
    'local_training.personal_learning_rate'
  }


@pytest.mark.parametrize('after_rounds', [(), (3,)])
@pytest.mark.parametrize(
  ('name', 'rate'),
  [
    ('ppfl', 'local_training.learning_rate'),
    ('ppfl', 'membership.newcomer_learning_rate'),
    ('fed_avg', 'local_training.batch_size'),
    ('fed_avg', 'local_training.optimizer'),
  ],
)
def test_what_is_no_rate_is_refused_with_those_that_are(
  after_rounds, name, rate
):
  config = lr_schedule.LrScheduleConfig(after_rounds, rates=(rate,))
  with pytest.raises(errors.ConfigError) as refusal:
    config.lower(_options(name))
  text = str(refusal.value)
  assert text.startswith('lr_schedule.rates must be one of ')
  assert text.endswith(f'got {rate!r}')
  assert repr(_RATE) in text.partition('got')[0]
  assert 'newcomer' not in text.partition('got')[0]


def test_falls_of_nothing_are_refused():
  config = lr_schedule.LrScheduleConfig((3,))
  options = {'server_learning_rate': 1.0, 'batch_size': 3}
  with pytest.raises(errors.ConfigError, match='of server_learning_rate$'):
    config.lower(options)
  assert lr_schedule.LrScheduleConfig().lower(options) == [options]
  exact = _options('fed_avg', local_training={'solver': 'exact'})
  with pytest.raises(errors.ConfigError, match='no learning rate of clients'):
    config.lower(exact)


@pytest.mark.parametrize(
  ('options', 'text'),
  [
    ({'after_rounds': (0,)}, 'after_rounds must be an integer >= 1, got 0'),
    ({'after_rounds': (3, 3)}, 'after_rounds must be an integer >= 4, got 3'),
    ({'after_rounds': (1.0,)}, 'after_rounds must be an integer >= 1, got 1.0'),
    ({'factor': 0.0}, 'factor must be a number > 0 and <= 1, got 0.0'),
    ({'factor': 1.5}, 'factor must be a number > 0 and <= 1, got 1.5'),
    ({'rates': (_RATE, _RATE)}, f'rates is .*{_RATE}.*; name each rate once'),
  ],
)
def test_options_out_of_range_are_refused(options, text):
  with pytest.raises(errors.ConfigError, match=text):
    lr_schedule.LrScheduleConfig(**options)


def test_identity_is_empty_without_falls():
  constant = lr_schedule.LrScheduleConfig(factor=0.5, rates=(_RATE,))
  assert constant.identity() == {}
  falling = lr_schedule.LrScheduleConfig((3,), 0.5)
  assert json.loads(json.dumps(falling.identity())) == {
    'lr_schedule': {'after_rounds': [3], 'factor': 0.5, 'rates': []}
  }


def test_theorems_of_constant_rates_refuse_others():
  lr_schedule.LrScheduleConfig().check_constant()
  with pytest.raises(
    errors.ConfigError, match=r'^the theorem assumes .* is \(3,\); leave'
  ):
    lr_schedule.LrScheduleConfig((3,)).check_constant()
