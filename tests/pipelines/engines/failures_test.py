import errno
import logging
import os
import pickle
import traceback

import pytest

from pipelines.engines import failures
from tff_algos.core import errors
from tff_algos.stores import objects

_TEXT = 'a "quoted" text,\nover lines, in Greek: αβγ'


def _as_text(error):
  """What an engine makes of it that has only text to hand on."""
  return RuntimeError(''.join(traceback.format_exception(error)))


def _pickled(error):
  return pickle.loads(pickle.dumps(error))


def _wrapped(error):
  try:
    raise RuntimeError('in a step') from error
  except RuntimeError as wrapper:
    return wrapper


def _carry(error):
  with pytest.raises(failures.StepError) as caught:
    with failures.carried():
      raise error
  return caught.value


@pytest.mark.parametrize('engine', [_as_text, _pickled, _wrapped])
@pytest.mark.parametrize(
  'kind', [errors.DataError, errors.PartitionError, errors.InfrastructureError]
)
def test_mistake_passes_through_any_engine(engine, kind):
  found = failures.find(engine(_carry(kind(_TEXT))))
  assert type(found) is kind
  assert str(found) == _TEXT


@pytest.mark.parametrize('engine', [_as_text, _pickled, _wrapped])
def test_error_of_the_disk_passes_through_any_engine(engine):
  number = errno.ENOSPC
  error = OSError(number, os.strerror(number), '/data/file')
  found = failures.find(engine(_carry(error)))
  assert found.errno == number
  assert str(found) == str(error)


def test_subclass_of_an_error_of_the_disk_is_one():
  found = failures.find(_as_text(_carry(PermissionError(13, 'Denied'))))
  assert isinstance(found, PermissionError)


def test_bug_is_not_carried():
  with pytest.raises(ZeroDivisionError):
    with failures.carried():
      _ = 1 / 0
  assert failures.find(_wrapped(ZeroDivisionError())) is None


def test_ctrl_c_is_found_in_what_wraps_it():
  assert isinstance(
    failures.find(_wrapped(KeyboardInterrupt())), KeyboardInterrupt
  )


def test_beam_need_not_tell_what_is_carried(caplog):
  beams = logging.getLogger('apache_beam.runners.common')
  beams.error(_carry(errors.DataError(_TEXT)))
  beams.error('Original traceback is %s', _as_text(_carry(OSError(28, 'full'))))
  assert not caplog.text
  beams.error(ZeroDivisionError('a bug'))
  assert 'a bug' in caplog.text


def test_error_of_another_module_is_that_which_it_extends():
  found = failures.find(_as_text(_carry(objects.ForbiddenError(_TEXT))))
  assert type(found) is errors.InfrastructureError
  assert str(found) == _TEXT
