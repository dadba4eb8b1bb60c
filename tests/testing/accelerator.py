"""The worker's environment, for tests of the runtime `pjrt`."""

import pytest

from tff_algos.runtimes.pjrt import pjrt_config

needed = pytest.mark.skipif(
  not pjrt_config.PjrtConfig().python_path.is_file(),
  reason='there is no .venv-accelerator; run `make env-accelerator`',
)
