"""Starts the processes of a group as programs of their own."""

import json
from collections.abc import Sequence

from tests.testing import ports, programs


class Group:
  """Programs that TF_CONFIG makes one group of.

  Attributes:
    addresses: Of each process.
    programs: Each process, by index.
  """

  def __init__(
    self,
    launcher: programs.Launcher,
    size: int,
    module: str,
    *arguments: str,
    **environment: str,
  ):
    self.addresses = ports.free_addresses(size)
    self.programs = [
      launcher.start(
        module, *arguments, **environment, TF_CONFIG=self._config(index)
      )
      for index in range(size)
    ]

  def wait(self) -> Sequence[programs.Program]:
    """Waits for the end of all; returns them."""
    return [program.wait() for program in self.programs]

  def name_of(self, index: int) -> str:
    """Returns what error texts call a process."""
    return f'process {index} ({self.addresses[index]})'

  def _config(self, index: int) -> str:
    return json.dumps(
      {
        'cluster': {'worker': self.addresses},
        'task': {'type': 'worker', 'index': index},
      }
    )
