"""What tests of several rooms share: it takes long to make.

Fixtures import what they need, so that tests of one room import no other.
"""

import pathlib
import sys
import tempfile
from typing import Any, NamedTuple

import hypothesis
import pytest

from tests.testing import programs, registries
from tff_algos.core import cache_folder

# The first example of a run waits while hypothesis reads what is imported, and
# a busy machine is no defect. The examples are the same in every run.
hypothesis.settings.register_profile(
  'suite',
  deadline=None,
  derandomize=True,
  suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile('suite')


@pytest.fixture(scope='session')
def launcher(tmp_path_factory):
  with programs.launcher(tmp_path_factory.mktemp('programs')) as opened:
    yield opened


@pytest.fixture(scope='session', autouse=True)
def temporary_files(tmp_path_factory):
  """Keeps caches, and what libraries forget (Beam a folder each), in pytest's."""
  folder = str(tmp_path_factory.mktemp('t'))
  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(tempfile, 'tempdir', folder)
    patched.setenv('TMPDIR', folder)
    patched.setenv(cache_folder.VARIABLE, str(tmp_path_factory.mktemp('cache')))
    yield


@pytest.fixture(scope='session', autouse=True)
def tff_context():
  """Drops TFF's own context, which complains when the interpreter exits."""
  yield
  if 'tff_algos.core.tff_compat' in sys.modules:
    from tff_algos.core import tff_compat

    tff_compat.refuse_default_context()


@pytest.fixture(scope='session')
def s3():
  from tests.testing import s3_server

  with s3_server.running() as server:
    yield server


@pytest.fixture(scope='session')
def gs(s3):
  from tests.testing import s3_server

  with s3_server.speaking_google(s3) as server:
    yield server


@pytest.fixture
def native_context():
  """TFF's own context for local computation; its worker ends with the test."""
  import psutil

  from tff_algos.core import tff_compat

  native = tff_compat.tff.backends.native
  before = set(psutil.Process().children())
  with tff_compat.in_context(native.create_sync_local_cpp_execution_context()):
    yield
  for child in set(psutil.Process().children()) - before:
    if child.name().startswith('worker_binary'):
      child.kill()
      child.wait()


DIGITS = 'configs/fed_soft/digits.py:smoke'


class FinishedRun(NamedTuple):
  """What `binaries.run` did with `configs/fed_soft/digits.py:smoke`."""

  program: programs.Program
  config: Any
  folder: pathlib.Path


@pytest.fixture(scope='session')
def finished_run(launcher, tmp_path_factory):
  from configs.fed_soft import digits
  from tff_algos.experiments import experiment

  folder = tmp_path_factory.mktemp('run')
  program = launcher.run(
    'binaries.run', f'--config={DIGITS}', f'--workdir={folder}'
  )
  assert program.returncode == 0, program.stderr
  return FinishedRun(
    program, experiment.parse(digits.get_config('smoke')), folder
  )


class TrainedRegressions(NamedTuple):
  """FedSoft on linear regressions, two rounds, each with its checkpoint."""

  config: Any
  folder: pathlib.Path


@pytest.fixture(scope='session')
def trained_regressions(tmp_path_factory):
  from configs.fed_soft import synthetic
  from tff_algos.experiments import datasets, experiment, training

  folder = tmp_path_factory.mktemp('regressions')
  values = synthetic.get_config('smoke')
  values.training.update({'num_rounds': 2, 'checkpoint_interval': 1})
  values.algorithm.local_training.num_local_epochs = 2
  values.runtime.name = 'debug'  # It traces no graphs.
  config = experiment.parse(values)
  datasets.build(config.dataset, folder)
  training.train(config, folder)
  return TrainedRegressions(config, folder)


@pytest.fixture(scope='session')
def digits_dataset(tmp_path_factory):
  """A workdir with the dataset of `DIGITS`, and nothing else; not to change."""
  from configs.fed_soft import digits
  from tff_algos.experiments import datasets, experiment

  folder = tmp_path_factory.mktemp('digits')
  config = experiment.parse(digits.get_config('smoke'))
  datasets.build(config.dataset, folder)
  return folder


@pytest.fixture
def kept_registries():
  """Removes what plug-ins register in the test; their modules are forgotten."""
  with registries.kept():
    yield
