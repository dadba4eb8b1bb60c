"""Tests of running checks that may fail or hang."""

import threading

from tff_algos.diagnostics import result


def test_result_of_a_check_is_returned():
  expected = result.CheckResult('disk', 'ok', '5 GiB')
  assert result.run_check('disk', lambda: expected, 5.0) == expected


def test_check_that_raises_is_a_failed_check():
  def broken():
    raise ImportError('no module named grpc')

  found = result.run_check('worker', broken, 5.0)
  assert (found.name, found.status) == ('worker', 'fail')
  assert found.found == 'ImportError: no module named grpc'
  assert 'make' in found.mend


def test_check_that_hangs_is_a_failed_check():
  forever = threading.Event()
  try:
    found = result.run_check('disk', forever.wait, 0.05)
  finally:
    forever.set()
  assert (found.name, found.status) == ('disk', 'fail')
  assert 'no answer within 0.05 s' in found.found


def test_text_shows_every_check_and_how_to_mend():
  text = result.to_text(
    [
      result.CheckResult('cores', 'ok', '2'),
      result.CheckResult('temp folder', 'fail', 'full\nreally', 'Make room.'),
    ]
  )
  assert text == (
    'ok    cores        2\n'
    'fail  temp folder  full\n'
    '                   really\n'
    '                   -> Make room.\n'
    '1 ok, 0 warn, 1 fail'
  )
