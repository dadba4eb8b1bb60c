"""Options of the runtime `pjrt`."""

import dataclasses
import pathlib
import sys

from tff_algos.core import cache_folder, checks

AUTO, VECTORIZED, LOOP = FORMS = ('auto', 'vectorized', 'loop')

# Beside the environment of this program, as `make env-accelerator` makes it.
_PYTHON = pathlib.Path(sys.prefix).parent / '.venv-accelerator/bin/python'


@dataclasses.dataclass(frozen=True)
class PjrtConfig:
  """Options of the runtime `pjrt`.

  Attributes:
    python: Python of the worker's environment, which has jax and NumPy; empty
      for that of `make env-accelerator`.
    clients_per_block: Clients computed at once; 0 chooses: on a CPU, or where
      jax reports no memory, by the size of the model, or of the upload if it is
      larger, at most 50; elsewhere as many as a quarter of the memory holds, at
      most 1000. Results change by no more than the rounding of sums.
    form: Clients of a block: `'vectorized'`, convolutions in groups of
      channels, one a client; `'loop'`, one after the other. `'auto'` loops on a
      CPU if the model has convolutions or does not vectorize for another reason
      (`core.model`), and vectorizes otherwise.
    cache: Folder of compiled programs; empty for
      `pjrt` in `core.cache_folder`.
    start_timeout_seconds: Maximal wait for the worker to answer, > 0, at
      most a day.
  """

  python: str = ''
  clients_per_block: int = 0
  form: str = 'auto'
  cache: str = ''
  start_timeout_seconds: float = 60.0

  def __post_init__(self):
    checks.check_one_of('form', self.form, FORMS)
    checks.check_int('clients_per_block', self.clients_per_block, minimum=0)
    checks.check_timeout('start_timeout_seconds', self.start_timeout_seconds)

  @property
  def python_path(self) -> pathlib.Path:
    """Returns the Python of the worker."""
    return pathlib.Path(self.python) if self.python else _PYTHON

  @property
  def cache_path(self) -> pathlib.Path:
    """Returns the folder of compiled programs."""
    if self.cache:
      return pathlib.Path(self.cache)
    return cache_folder.path() / 'pjrt'
