"""What tests of several rooms share: it takes long to start."""

import os
import tempfile

import hypothesis
import pytest

from tests.testing import costs, programs

pytest_plugins = ['tests.testing.costs']

# The first example of a run waits while hypothesis reads what is imported, and
# a busy machine is no defect.
hypothesis.settings.register_profile(
  'suite', suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile('suite')


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
  """Leaves out the other tier; hands processes the costliest groups first."""
  if costs.tier_of(config) != 'verify':
    chosen = [item for item in items if not item.get_closest_marker('verify')]
    config.hook.pytest_deselected(
      items=[item for item in items if item not in set(chosen)]
    )
    items[:] = chosen
  if config.getoption('dist', 'no') == 'no':
    return
  for item in items:
    if not item.get_closest_marker('xdist_group'):
      item.add_marker(pytest.mark.xdist_group(costs.group_of(item)))
  if not config.getoption('random_order_bucket', None):
    seconds = costs.recorded(costs.tier_of(config))
    items.sort(key=lambda item: -seconds.get(costs.group_of(item), 0.0))


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
