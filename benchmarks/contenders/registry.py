"""All contenders by name, and how to start each."""

import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[2]


class Contender(NamedTuple):
  """How to start a contender.

  Attributes:
    module: The program; run with `-m` from the project's root.
    python: The interpreter of its environment; a contender whose interpreter
      is missing is left out, and that is said.
    scouts: Options of short runs that try several forms before the case; the
      fastest form takes part. Empty if there is one form only.
  """

  module: str
  python: str = sys.executable
  scouts: tuple[Mapping[str, Any], ...] = ()


_NUM_CORES = len(os.sched_getaffinity(0))

CONTENDERS: Mapping[str, Contender] = {
  'vectorized': Contender('benchmarks.contenders.vectorized'),
  'tff': Contender('benchmarks.contenders.tff'),
  'tff_stock': Contender('benchmarks.contenders.tff_stock'),
  'floor_tensorflow': Contender(
    'benchmarks.contenders.floor_tensorflow',
    # How many loops run side by side is fixed when the process starts.
    scouts=tuple({'loops': loops} for loops in sorted({1, _NUM_CORES})),
  ),
  'dataset': Contender('benchmarks.contenders.dataset'),
  'tf_data': Contender('benchmarks.contenders.tf_data'),
}
