"""The published seconds of CMFL's figures 8 and 9, by hand."""

import numpy as np
import pytest

from tff_algos.core import errors
from tff_algos.evaluation import round_time

# C = 43 members, n = 65 training clients, models of 20,000 numbers.
_C, _N, _SIZE = 43, 65, 20_000


def _rounds(rate):
  transfer = _SIZE / rate
  return {
    'fed_avg': round_time.pulling(transfer, 2),
    'cmfl': round_time.cmfl(transfer, _C, _N),
    'brain_torrent': round_time.pulling(transfer, _N),
    'gossip': round_time.pulling(transfer, _N - 1),
  }


@pytest.mark.parametrize(
  ('rate', 'seconds'),
  [
    (1e6, (0.13, 0.981, 1.39, 1.37)),
    (1e7, (0.094, 0.189, 0.22, 0.218)),
    (1e8, (0.0904, 0.1098, 0.103, 0.1028)),
  ],
)
def test_seconds_of_a_round(rate, seconds):
  found = [sum(one) for one in _rounds(rate).values()]
  np.testing.assert_allclose(found, seconds, rtol=1e-12)


def test_communication_and_computation_of_a_round():
  np.testing.assert_allclose(
    list(_rounds(1e6).values()),
    [(0.04, 0.09), (0.88, 0.101), (1.3, 0.09), (1.28, 0.09)],
    rtol=1e-12,
  )


def test_a_primary_that_serves_one_after_the_other():
  """(43 + 65) * 0.02 s: no better than a broadcast among all."""
  found = round_time.cmfl(0.02, _C, _N, 'primary_serial')
  np.testing.assert_allclose(found.communication, 2.16)
  assert found.computation == round_time.cmfl(0.02, _C, _N).computation


def test_work_of_other_machines():
  work = round_time.Work(1.0, 0.5, 0.25, 0.125)
  assert sum(round_time.cmfl(0.0, 2, 3, work=work)) == 1.375
  assert round_time.pulling(2.0, 0.5, work) == (1.0, 1.5)


def test_a_clock_is_read_from_settings():
  assert round_time.read_clock([]) == round_time.Clock()
  found = round_time.read_clock(
    ['training=2', 'scoring=0', 'download=primary_serial', 'rates=5e5,1e6']
  )
  work = round_time.Work(training=2.0, scoring=0.0)
  assert found == round_time.Clock(work, 'primary_serial', (5e5, 1e6))


@pytest.mark.parametrize(
  ('setting', 'text'),
  [
    ('training=-1', "clock's training must be a finite number >= 0, got -1"),
    ('training=fast', 'must be a finite number >= 0, got .fast'),
    ('rates=1e6,0', "clock's rates must be a finite number > 0, got 0.0"),
    ('rates=', 'must be a finite number > 0'),
    ('download=fast', "no setting 'download=fast'; give .*=primary_serial"),
    ('speed=1', "no setting 'speed=1'; give seconds as training=0.05"),
  ],
)
def test_settings_that_no_clock_has_are_refused(setting, text):
  with pytest.raises(errors.ConfigError, match=text):
    round_time.read_clock([setting])
