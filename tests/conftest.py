"""What tests of several rooms share: it takes long to start."""

import pytest

from tests.testing import programs


@pytest.fixture(scope='session')
def launcher(tmp_path_factory):
  with programs.launcher(tmp_path_factory.mktemp('programs')) as opened:
    yield opened
