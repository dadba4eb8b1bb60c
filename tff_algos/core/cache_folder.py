"""Folder of what can be fetched or made again: mirrors, compiled programs."""

import os
import pathlib

VARIABLE = 'TFF_ALGOS_CACHE'


def path() -> pathlib.Path:
  """Returns $TFF_ALGOS_CACHE, by default ~/.cache/tff_algos; may not exist."""
  chosen = os.environ.get(VARIABLE) or '~/.cache/tff_algos'
  return pathlib.Path(chosen).expanduser().absolute()
