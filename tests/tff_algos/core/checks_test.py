"""Tests of checks: nothing passes changed, and the text says what is wrong."""

import math

import numpy as np
import pytest

from tff_algos.core import checks, errors

_NOT_NUMBERS = ['1', None, True, [1], float('nan'), math.inf, -math.inf]
_HUGE = 10**400


def _refused(text):
  return pytest.raises(errors.ConfigError, match=text)


@pytest.mark.parametrize('value', [2, 3, 10**30])
def test_check_int_returns_integers_from_the_minimum_on(value):
  assert checks.check_int('size', value, minimum=2) is value


@pytest.mark.parametrize(
  'value', [0, -5, 2.0, True, False, '2', None, np.float32(3)]
)
def test_check_int_refuses_anything_else(value):
  with _refused(r'^size must be an integer >= 1, got '):
    checks.check_int('size', value, minimum=1)


def test_check_int_with_a_maximum_names_both_ends():
  assert checks.check_int('port', 9, minimum=1, maximum=9) == 9
  with _refused(r'^port must be an integer from 1 to 9, got 10$'):
    checks.check_int('port', 10, minimum=1, maximum=9)


@pytest.mark.parametrize('value', [1e-300, 1, 2.5, 10**300])
def test_check_positive_returns_positive_numbers(value):
  assert checks.check_positive('rate', value) is value


@pytest.mark.parametrize('value', [0, 0.0, -1e-9, _HUGE, *_NOT_NUMBERS])
def test_check_positive_refuses_anything_else(value):
  with _refused(r'^rate must be a finite number > 0, got '):
    checks.check_positive('rate', value)


def test_check_timeout():
  for value in (1e-3, 30, 86_400.0):
    assert checks.check_timeout('wait', value) == value
  for value in (0, 86_400.1, _HUGE, *_NOT_NUMBERS):
    with _refused('^wait must be a number of seconds > 0 and <= 86400, got '):
      checks.check_timeout('wait', value)


def test_check_at_least():
  assert checks.check_at_least('weight', 0.5, 0.5) == 0.5
  for value in (0.49, _HUGE, *_NOT_NUMBERS):
    with _refused(r'^weight must be a finite number >= 0.5, got '):
      checks.check_at_least('weight', value, 0.5)


def test_check_fraction():
  for value in (0, 1, 0.25):
    assert checks.check_fraction('share', value) == value
  for value in (-1e-9, 1.001, _HUGE, *_NOT_NUMBERS):
    with _refused(r'^share must be a number from 0 to 1, got '):
      checks.check_fraction('share', value)


def test_check_below_one():
  for value in (0, 0.999):
    assert checks.check_below_one('decay', value) == value
  for value in (-1e-9, 1, _HUGE, *_NOT_NUMBERS):
    with _refused(r'^decay must be a number >= 0 and < 1, got '):
      checks.check_below_one('decay', value)


def test_check_share_leaves_out_0_and_a_proper_one_1_as_well():
  for value in (1e-9, 0.5, 1):
    assert checks.check_share('rate', value) == value
  for value in (0, 1.001, _HUGE, *_NOT_NUMBERS):
    with _refused(r'^rate must be a number > 0 and <= 1, got '):
      checks.check_share('rate', value)
  for value in (1e-9, 0.999):
    assert checks.check_proper_share('delta', value) == value
  for value in (0, 1, _HUGE, *_NOT_NUMBERS):
    with _refused(r'^delta must be a number > 0 and < 1, got '):
      checks.check_proper_share('delta', value)


def test_check_address():
  for value in ('localhost:1', '10.0.0.7:65535'):
    assert checks.check_address('worker', value) == value
  for value in ('', 'host', ':80', 'host:', 'host:0', 'host:65536', 'h:p', 80):
    with _refused(r'^worker must be host:port, such as 10.0.0.7:8000, got '):
      checks.check_address('worker', value)


def test_check_one_of_lists_the_choices():
  assert checks.check_one_of('start', 'own', ('own', 'best')) == 'own'
  with _refused(r"^start must be one of 'own', 'best', got 'Own'$"):
    checks.check_one_of('start', 'Own', ('own', 'best'))


def test_a_value_that_is_given_is_returned():
  assert checks.check_given('maximum', 0) == 0
  with pytest.raises(errors.ConfigError, match='maximum must be given'):
    checks.check_given('maximum', None)
