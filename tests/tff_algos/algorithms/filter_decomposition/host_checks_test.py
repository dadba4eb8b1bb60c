"""Tests of which hosts filter decomposition can go around."""

import pytest

from tests.testing import factored
from tff_algos.algorithms import registry
from tff_algos.algorithms.filter_decomposition import host_checks
from tff_algos.core import errors


def _host(name='fed_avg', **options):
  """Returns a host and all its options."""
  section = factored.host(name, **options)
  parsed = registry.parse_config(section)
  host = registry.build_algorithm(parsed, factored.model())
  return host, parsed.options


def _server(name='sgd', learning_rate=1.0, momentum=0.0):
  return {
    'server_optimizer': {
      **{'name': name, 'learning_rate': learning_rate},
      'momentum': momentum,
    }
  }


_KEPT = {'local_training': {'keeps_optimizer_state': True}}


def test_fed_avg_and_fed_prox_are_fit_for_everything():
  for options in ({}, {'proximal_weight': 0.1}):
    host, parsed = _host(**options)
    host_checks.check_takes_mean(host)
    host_checks.check_has_fast_rounds(host, parsed, 2)
    host_checks.check_forgets_factors(host, parsed, 'kernels')


def test_a_step_of_sgd_may_be_fast_but_does_not_forget():
  host, options = _host(**_server(momentum=0.9))
  host_checks.check_has_fast_rounds(host, options, 2)


def test_another_rule_than_the_mean_is_refused():
  for options in ({'rule': 'median'}, {'mixes_nearest_neighbors': True}):
    host, _ = _host(aggregation=options)
    text = "'fed_avg' takes no mean of its .* without mixes_nearest_neighbors"
    with pytest.raises(errors.ConfigError, match=text):
      host_checks.check_takes_mean(host)


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
  host, parsed = _host(name, **options)
  with pytest.raises(errors.ConfigError, match=f'slow_period is 3, .*{text}'):
    host_checks.check_has_fast_rounds(host, parsed, 3)


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
  host, parsed = _host(name, **options)
  text = f"averaging 'kernels' .* but host '{name}' {text}"
  with pytest.raises(errors.ConfigError, match=text):
    host_checks.check_forgets_factors(host, parsed, 'kernels')
