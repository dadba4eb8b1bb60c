"""All contenders by name, and how to start each."""

import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
# Where the environments of the peers are; `make bench-peers` makes them.
PEERS = ROOT / os.environ.get('PEERS', 'benchmarks/.peers')


class Contender(NamedTuple):
  """How to start a contender.

  Attributes:
    module: The program; run with `-m` from the project's root.
    python: The interpreter of its environment; a contender whose interpreter
      is missing is left out, and that is said.
    forms: The forms that take part; the row is that of the fastest.
    scouts: Options of short runs that try several forms before the case; the
      fastest of each takes part in place of `forms`.
  """

  module: str
  python: str = sys.executable
  forms: tuple[Mapping[str, Any], ...] = ({},)
  scouts: tuple[Mapping[str, Any], ...] = ()


def _peer(name: str, *forms: Mapping[str, Any]) -> Contender:
  """Returns somebody else's simulator, which has an environment of its own."""
  return Contender(
    f'benchmarks.contenders.{name}',
    python=str(PEERS / name / 'bin' / 'python'),
    forms=forms or ({},),
  )


def _ours(*forms: Mapping[str, Any]) -> Contender:
  """Returns a runtime of ours."""
  return Contender('benchmarks.contenders.runtime', forms=forms)


_NUM_CORES = len(os.sched_getaffinity(0))
_ONE_OR_ALL_CORES = sorted({1, _NUM_CORES})

CONTENDERS: Mapping[str, Contender] = {
  'vectorized': _ours({'runtime': 'vectorized'}),
  'pjrt': _ours(
    *({'runtime': 'pjrt', 'devices': count} for count in _ONE_OR_ALL_CORES)
  ),
  'tff': _ours({'runtime': 'tff'}),
  'tff_stock': Contender('benchmarks.contenders.tff_stock'),
  'floor_tensorflow': Contender(
    'benchmarks.contenders.floor_tensorflow',
    # How many loops run side by side is fixed when the process starts.
    scouts=tuple({'loops': loops} for loops in _ONE_OR_ALL_CORES),
  ),
  'jax': _peer('jax', *({'devices': count} for count in _ONE_OR_ALL_CORES)),
  'fedjax': _peer('fedjax'),
  'pytorch': _peer(
    'pytorch', *({'processes': count} for count in _ONE_OR_ALL_CORES)
  ),
  'flower': _peer('flower'),
  'dataset': Contender('benchmarks.contenders.dataset'),
  'tf_data': Contender('benchmarks.contenders.tf_data'),
}
