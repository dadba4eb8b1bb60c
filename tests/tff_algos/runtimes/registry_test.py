import dataclasses
import subprocess
import sys

import pytest

from tests.testing import programs, running_sum
from tff_algos.core import config as config_lib
from tff_algos.core import errors
from tff_algos.runtimes import debug_runtime, registry
from tff_algos.runtimes.distributed import process_group
from tff_algos.runtimes.tff import tff_config, tff_runtime
from tff_algos.runtimes.vectorized import vectorized_runtime


def test_default_is_the_vectorized_runtime():
  config = config_lib.from_dict(registry.RuntimeConfig, {})
  assert config == registry.RuntimeConfig(name='vectorized')


@pytest.mark.parametrize(
  ('name', 'expected'),
  [
    ('tff', tff_runtime.TffRuntime),
    ('vectorized', vectorized_runtime.VectorizedRuntime),
    ('debug', debug_runtime.DebugRuntime),
  ],
)
def test_build_makes_the_runtime_that_is_named(name, expected):
  built = registry.build_runtime(
    registry.RuntimeConfig(name), running_sum.algorithm(), 3
  )
  assert type(built) is expected


@pytest.mark.parametrize('name', ['tff', 'debug'])
def test_runtimes_that_know_no_other_processes_are_refused(name):
  with pytest.raises(
    errors.ConfigError, match=f'runtime.name=vectorized, got {name!r}'
  ):
    registry.build_runtime(
      registry.RuntimeConfig(name),
      running_sum.algorithm(),
      3,
      process_group.ProcessGroup(),
    )


def test_tff_workers_of_other_machines_need_a_trusted_network(caplog):
  config = registry.RuntimeConfig(
    'tff', tff=tff_config.TffConfig(workers=('10.0.0.7:8000',))
  )
  with pytest.raises(errors.ConfigError, match='tff.workers names 10.0.0.7:8'):
    registry.build_runtime(config, running_sum.algorithm(), 3)
  trusted = dataclasses.replace(config, trust_network=True)
  registry.build_runtime(trusted, running_sum.algorithm(), 3)
  assert 'neither authenticate nor encrypt' in caplog.text


def test_every_runtime_has_its_options_in_the_config():
  fields = {field.name for field in dataclasses.fields(registry.RuntimeConfig)}
  shared = {
    *('devices', 'gpu_memory_limit_mib'),
    *('peer_timeout_seconds', 'peer_speeds', 'peer_shards', 'trust_network'),
  }
  assert fields == {'name', *shared, *registry.RUNTIMES}


def test_options_of_all_runtimes_stand_side_by_side():
  """So that `--config.runtime.name=debug` alone switches."""
  values = {'vectorized': {'clients_per_block': 7}, 'debug': {}}
  for name in registry.RUNTIMES:
    config = config_lib.from_dict(
      registry.RuntimeConfig, {'name': name, **values}, 'config.runtime'
    )
    assert config.name == name
    assert config.vectorized.clients_per_block == 7


@pytest.mark.parametrize(
  ('values', 'words'),
  [
    ({'gpu_memory_limit_mib': -1}, 'gpu_memory_limit_mib must be an integer'),
    (
      {'name': 'pjrt', 'gpu_memory_limit_mib': 512},
      'gpu_memory_limit_mib=512 limits .* XLA_PYTHON_CLIENT_MEM_FRACTION',
    ),
    ({'peer_timeout_seconds': 0.0}, 'peer_timeout_seconds must be a finite'),
    (
      {'name': 'tff', 'devices': ('GPU:0',)},
      "need config.runtime.name=vectorized or pjrt, got 'tff'",
    ),
    ({'name': 'vectorised'}, "config.runtime: name must be one of 'tff'"),
    ({'nam': 'tff'}, "no key 'nam'; did you mean 'name'"),
    (
      {'vectorized': {'clients_per_block': -1}},
      'clients_per_block must be an integer >= 0, got -1',
    ),
    (
      {'tff': {'start_timeout': 3.0}},
      "no key 'start_timeout'; did you mean 'start_timeout_seconds'",
    ),
  ],
)
def test_wrong_section_is_refused(values, words):
  with pytest.raises(errors.ConfigError, match=words):
    config_lib.from_dict(registry.RuntimeConfig, values, 'config.runtime')


_WITHOUT_TFF = """
import sys
sys.modules['tensorflow_federated'] = None  # As if it were not installed.
from tests.testing import running_sum
from tff_algos.core import errors
from tff_algos.runtimes import registry

for name in ('vectorized', 'debug', 'tff'):
  config = registry.RuntimeConfig(name)
  try:
    built = registry.build_runtime(config, running_sum.algorithm(), 3)
    print(type(built).__name__)
  except errors.ConfigError as error:
    print(error)
"""


def test_only_the_tff_runtime_needs_tff_to_be_installed():
  done = subprocess.run(
    [sys.executable, '-c', _WITHOUT_TFF],
    cwd=programs.ROOT,
    check=True,
    stdout=subprocess.PIPE,
    text=True,
  )
  *others, refused = done.stdout.splitlines()
  assert others == ['VectorizedRuntime', 'DebugRuntime']
  assert "'tff' needs the package tensorflow-federated" in refused
