"""The cases that are packed, and the forms of each that are measured."""

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks import cases as cases_lib
from benchmarks import workload as workload_lib


class Form(NamedTuple):
  """How the runtime `pjrt` computes the clients of a block.

  Attributes:
    form: Of `pjrt_config.PjrtConfig`.
    block: Clients of a block.
  """

  form: str
  block: int

  def __str__(self) -> str:
    return f'{self.form}, {self.block}'


class Case(NamedTuple):
  """A workload, and its forms.

  Attributes:
    workload: One of our algorithms.
    forms: Of the runtime.
    blocks: Blocks of the hand-written rounds; 1 is a loop over clients.
  """

  workload: workload_lib.Workload
  forms: tuple[Form, ...]
  blocks: tuple[int, ...]


def _case(workload: workload_lib.Workload, *blocks: int) -> Case:
  """Returns a case whose forms have these blocks, the first one small."""
  forms = [Form('vectorized', block) for block in blocks]
  return Case(workload, (*forms, Form('loop', blocks[0])), (1, *blocks))


def _first(name: str) -> workload_lib.Workload:
  return cases_lib.CASES[name].entries[0].workload


CASES: Mapping[str, Case] = {
  'mlp1000': _case(_first('mlp1000'), 10, 100, 1000),
  'lin1000': _case(_first('lin1000'), 50, 1000),
  'ifca': _case(_first('ifca'), 10, 100),
  'fedsoft_cnn100': _case(_first('fedsoft_cnn100'), 10, 50),
  'decomposed10': _case(_first('decomposed10'), 10),
  'ppfl300': _case(_first('ppfl300'), 50, 300),
  # To try the packer, not to measure with.
  'tiny': _case(_first('tiny'), 2),
  'tiny_lin': _case(_first('tiny_lin'), 3),
  'tiny_ifca': _case(_first('tiny_ifca'), 4),
  'tiny_fedsoft': _case(_first('tiny_fedsoft'), 3),
  'tiny_ppfl': _case(_first('tiny_ppfl'), 3),
  'tiny_decomposed': _case(_first('tiny_decomposed'), 2),
}
