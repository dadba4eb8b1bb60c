import pytest

from tff_algos.core import cache_folder, errors
from tff_algos.runtimes.pjrt import pjrt_config


def test_paths_are_those_given_or_the_usual_ones():
  config = pjrt_config.PjrtConfig()
  assert config.python_path.parts[-3:] == (
    '.venv-accelerator',
    'bin',
    'python',
  )
  assert config.cache_path == cache_folder.path() / 'pjrt'
  config = pjrt_config.PjrtConfig(python='/p', cache='/c')
  assert (str(config.python_path), str(config.cache_path)) == ('/p', '/c')


@pytest.mark.parametrize(
  'options',
  [
    {'clients_per_block': -1},
    {'start_timeout_seconds': 0.0},
    {'start_timeout_seconds': 1e10},
  ],
)
def test_options_out_of_range_are_refused(options):
  with pytest.raises(errors.ConfigError, match=next(iter(options))):
    pjrt_config.PjrtConfig(**options)
