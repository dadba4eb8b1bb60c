"""A recorder of random streams: what was drawn, and which code drew it.

A stream is what the bits of a draw are a function of:
  ('host', base seed, purpose, round, client id)  of `core.seeds`
  ('philox', seed)                                of `tf.random.stateless_*`
  ('hash', seed, counters)                        of `numerics.index_random`
`fold_in` and `split` of `tf.random` make seeds, and draw nothing. Tracing draws
nothing either: code is recorded where it runs eagerly.
"""

import contextlib
import pathlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from unittest import mock

import numpy as np
import tensorflow as tf

from tff_algos.core import seeds
from tff_algos.numerics import index_random

# What of `tf.random` is recorded.
STATELESS = (
  'stateless_normal',
  'stateless_truncated_normal',
  'stateless_uniform',
)

_ROOT = f'{pathlib.Path(__file__).parents[2]}/'
_OURS = ('tff_algos/', 'pipelines/', 'binaries/')
# Functions between a draw and whoever wants it.
_PRIMITIVES = ('tff_algos/core/seeds.py', 'tff_algos/numerics/index_random.py')


@contextlib.contextmanager
def recorded() -> Iterator[Mapping[tuple, list[str]]]:
  """Records all draws of the block: stream -> places that drew it, in order.

  A place is the chain of functions that led to the draw, outermost first, such
  as `training/loop.py:run_round:12 > algorithms/cmfl/committee_roles.py:assign:34`.
  """
  found = defaultdict(list)
  with contextlib.ExitStack() as stack:

    def watch(module, name, streams_of):
      original = getattr(module, name)

      def wrapper(*args, **kwargs):
        args = [list(a) if isinstance(a, Iterator) else a for a in args]
        if module is seeds or tf.executing_eagerly():
          place = _place()
          # A batch with padding reads one row several times.
          for stream in {*streams_of(*args, **kwargs)}:
            found[stream].append(place)
        return original(*args, **kwargs)

      stack.enter_context(mock.patch.object(module, name, wrapper))

    watch(seeds, 'derive_seeds', _of_clients)
    watch(seeds, 'numpy_generator', _of_generator)
    watch(index_random, 'random_bits', _of_hash)
    for name in STATELESS:
      watch(tf.random, name, _of_philox)
    yield found


def _of_clients(base_seed, purpose, round_num, client_ids):
  return [
    ('host', base_seed, purpose, int(round_num), client_id)
    for client_id in client_ids
  ]


def _of_generator(base_seed, purpose, round_num=0, client_id=''):
  return _of_clients(base_seed, purpose, round_num, [client_id])


def _of_hash(seed, *counters):
  words = tuple(np.asarray(seed).tolist())
  columns = np.broadcast_arrays(*map(np.asarray, counters))
  rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
  return [('hash', words, *row) for row in rows]


def _of_philox(shape, seed, *args, **kwargs):
  del shape, args, kwargs
  return [('philox', *np.asarray(seed).tolist())]


def _place():
  chain, frame = [], sys._getframe(2)
  while frame is not None:
    path = frame.f_code.co_filename.removeprefix(_ROOT)
    if path.startswith(_OURS) and path not in _PRIMITIVES:
      name = frame.f_code.co_qualname.replace('.<locals>', '')
      chain.append(f'{path.removeprefix("tff_algos/")}:{name}:{frame.f_lineno}')
    frame = frame.f_back
  return ' > '.join(reversed(chain))
