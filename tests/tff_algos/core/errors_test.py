"""Tests of the error classes: who may catch what."""

import errno
import inspect

import pytest

from tff_algos.core import errors

_CLASSES = [
  value
  for value in vars(errors).values()
  if inspect.isclass(value) and value.__module__ == errors.__name__
]


@pytest.mark.parametrize('error_class', _CLASSES)
def test_every_error_is_a_users_and_keeps_its_text(error_class):
  assert issubclass(error_class, errors.UserError)
  assert str(error_class('the text')) == 'the text'


def test_value_and_type_errors_are_caught_as_such():
  assert issubclass(errors.ConfigError, ValueError)
  assert issubclass(errors.StageTypeError, TypeError)


def test_request_error_carries_its_http_status():
  assert errors.RequestError('malformed').status == 400
  assert errors.RequestError('nobody', status=404).status == 404


def test_messages_quote_long_texts_in_part():
  assert errors.shorten('x' * 500) == 'x' * 500
  assert errors.shorten('x' * 501) == 'x' * 500 + '...'


def test_a_full_disk_is_of_the_disk_and_a_missing_file_is_not():
  assert errors.is_of_disk(OSError(errno.ENOSPC, 'full'))
  assert not errors.is_of_disk(FileNotFoundError(errno.ENOENT, 'gone'))
  assert not errors.is_of_disk(ValueError(errno.ENOSPC))
