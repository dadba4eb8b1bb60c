"""The accelerator worker: runs lowered client work on today's XLA.

Runs in an environment of its own that has NumPy and jax alone, and serves the
program at the other end of the socket whose descriptor is its argument, until
that end closes. Requests (`pjrt_connection`):

  hello                  -> versions and devices
  compile name           <- HLO, zeros of the arguments
  keep name              <- arrays, which stay on the device under that name
  drop name
  run program shared     <- the clients' arguments, `[num_blocks, ...]`
                         -> sums over the blocks, the other outputs by block

Sums are added in the order of the blocks, so that timing changes no bit.
"""

import dataclasses
import re
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import frames
import jax
import jax.export  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp
import numpy as np

# Not public: the one translation of HLO, in which TensorFlow lowers, to
# StableHLO. The version of jax is pinned in the worker's lock.
from jax._src.lib import (
  _jax,  # pyright: ignore[reportAttributeAccessIssue]
)

# Its entry, with its arguments, in a program's text.
_MAIN = re.compile(r'func\.func (?:public )?@main\((.*)')


class Worker:
  """What stays on the device between requests."""

  def __init__(self) -> None:
    """Keeps nothing yet."""
    self._programs: dict[str, Callable[..., Any]] = {}
    self._kept: dict[str, list[jax.Array]] = {}

  def hello(self) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Returns the versions and the devices."""
    devices = [
      {
        'kind': device.device_kind,
        'platform': device.platform,
        'bytes': (device.memory_stats() or {}).get('bytes_limit', 0),
      }
      for device in jax.devices()
    ]
    return {'jax': jax.__version__, 'devices': devices}, []

  def compile(
    self,
    name: str,
    outputs: list[tuple[str, list[int]]],
    arrays: list[np.ndarray],
    arguments: list[tuple[str, list[int]]],
  ) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Compiles a program, or takes it from the cache on disk.

    Args:
      name: Name for `run`.
      outputs: Dtype and shape of each output.
      arrays: The serialized HLO, one array of uint8.
      arguments: Dtype and shape of each argument.
    """
    started = time.perf_counter()
    types = [jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in arguments]

    def stand_in(*unused: jax.Array) -> tuple[jax.Array, ...]:
      return tuple(jnp.zeros(shape, dtype) for dtype, shape in outputs)

    # A program of the same type, of which the instructions are replaced.
    program = dataclasses.replace(
      jax.export.export(jax.jit(stand_in, keep_unused=True))(*types),
      mlir_module_serialized=_jax.mlir.hlo_to_stablehlo(arrays[0].tobytes()),
    )
    (main,) = _MAIN.findall(program.mlir_module())
    if main.count('%arg') != len(types):
      raise ValueError(
        f'the program takes fewer arguments, {main.count("%arg")}, than the '
        f'client work, {len(types)}: a shape in it depends on the value of an '
        'argument, which XLA fixed'
      )
    self._programs[name] = (
      jax.jit(program.call, keep_unused=True).lower(*types).compile()
    )
    return {'seconds': time.perf_counter() - started}, []

  def keep(
    self, name: str, arrays: list[np.ndarray]
  ) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Moves arrays to the device under a name, in place of earlier ones."""
    self._kept[name] = [jax.device_put(one) for one in arrays]
    return {}, []

  def drop(self, name: str) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Forgets what is kept under a name."""
    self._kept.pop(name, None)
    return {}, []

  def run(
    self,
    program: str,
    shared: list[str],
    num_sums: int,
    arrays: list[np.ndarray],
  ) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Runs a program on every block.

    Args:
      program: Name of the program.
      shared: Names of its first arguments, kept and the same for all blocks.
      num_sums: Number of its first outputs that are summed over the blocks.
      arrays: Its other arguments, `[num_blocks, ...]`.

    Returns:
      The sums, then the other outputs stacked `[num_blocks, ...]`.
    """
    call = self._programs[program]
    common = [leaf for name in shared for leaf in self._kept[name]]
    sums, others = None, []
    for block in zip(*arrays, strict=True):
      outputs = call(*common, *block)
      ours = list(outputs[:num_sums])
      sums = ours if sums is None else _add(sums, ours)
      others.append(outputs[num_sums:])
    stacked = [
      np.stack([np.asarray(one) for one in column])
      for column in zip(*others, strict=True)
    ]
    return {}, [np.asarray(one) for one in sums or []] + stacked


@jax.jit
def _add(first: list[jax.Array], second: list[jax.Array]) -> list[jax.Array]:
  return [one + other for one, other in zip(first, second, strict=True)]


def main(descriptor: int, cache: str) -> None:
  """Serves until the other side closes."""
  if cache:
    jax.config.update('jax_compilation_cache_dir', cache)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  worker = Worker()
  with socket.socket(fileno=descriptor) as connection:
    while (message := frames.receive(connection)) is not None:
      header, arrays = message
      request = header.pop('request')
      takes = (
        {'arrays': arrays} if request in ('compile', 'keep', 'run') else {}
      )
      try:
        answer, results = getattr(worker, request)(**header, **takes)
      except Exception as error:  # Its text is the program's error.
        answer = {'error': f'{type(error).__name__}: {error}'}
        results = []
      frames.send(connection, answer, results)


if __name__ == '__main__':
  main(int(sys.argv[1]), sys.argv[2])
