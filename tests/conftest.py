"""What tests of several rooms share: it takes long to start."""

import os
import tempfile

import hypothesis
import pytest

from tests.testing import programs

# The first example of a run waits while hypothesis reads what is imported, and
# a busy machine is no defect.
hypothesis.settings.register_profile(
  'suite', suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile('suite')


@pytest.fixture(scope='session')
def launcher(tmp_path_factory):
  with programs.launcher(tmp_path_factory.mktemp('programs')) as opened:
    yield opened


@pytest.fixture(scope='session', autouse=True)
def temporary_files(tmp_path_factory):
  """Keeps what libraries forget (each Beam pipeline a folder) among pytest's."""
  before = tempfile.tempdir, os.environ.get('TMPDIR')
  tempfile.tempdir = os.environ['TMPDIR'] = str(tmp_path_factory.mktemp('t'))
  yield
  tempfile.tempdir = before[0]
  if before[1] is None:
    del os.environ['TMPDIR']
  else:
    os.environ['TMPDIR'] = before[1]
