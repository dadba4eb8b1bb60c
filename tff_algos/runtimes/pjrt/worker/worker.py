"""The accelerator worker: runs lowered client work on today's XLA.

Runs in an environment of its own that has NumPy and jax alone, and serves the
program at the other end of the socket whose descriptor is its argument, until
that end closes. Requests (`pjrt_connection`):

  hello devices          -> versions and devices; chooses those of the names
  compile name           <- HLO
  keep name              <- arrays, which stay on every device under that name
  stack name             <- rows of client states, and rows of other stacks
  run program shared     <- the clients' arguments, `[num_blocks, ...]`
  finish                 -> sums over the blocks of all runs, then the collected
                            outputs by block
  fetch name             -> the leaves of a stack of client states

Any request may name stacks and kept arrays to `drop`. A run returns before its
blocks are computed, so several are in flight; blocks go to the devices in turn.
Sums are added in the order of the blocks, so that neither timing nor the number
of devices changes a bit.
"""

import dataclasses
import functools
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Sequence
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

Answer = tuple[dict[str, Any], list[np.ndarray]]


class Worker:
  """What stays on the devices between requests."""

  def __init__(self) -> None:
    """Keeps nothing yet."""
    self._devices: list[jax.Device] = []
    # Of each device.
    self._programs: dict[str, list[Callable[..., Any]]] = {}
    self._kept: dict[str, list[list[jax.Array]]] = {}
    self._stacks: dict[str, list[jax.Array]] = {}
    self._sums: list[jax.Array] | None = None
    self._collected: list[list[jax.Array]] = []

  def answer(self, header: dict[str, Any], arrays: list[np.ndarray]) -> Answer:
    """Answers a request.

    Args:
      header: `request`, its arguments, and the names to `drop`.
      arrays: Of the request.
    """
    header = dict(header)
    for name in header.pop('drop', ()):
      self._stacks.pop(name, None)
      self._kept.pop(name, None)
    request = header.pop('request')
    if request in ('compile', 'keep', 'stack', 'run'):
      header['arrays'] = arrays
    return getattr(self, request)(**header)

  def hello(self, devices: Sequence[str]) -> Answer:
    """Chooses devices; returns the version of jax, and all devices.

    Args:
      devices: Names such as `'GPU:0'`; none for all of the first platform, or
        one CPU.
    """
    num_logical = 1 + max(
      (int(name[4:]) for name in devices if re.fullmatch(r'CPU:\d+', name)),
      default=0,
    )
    if num_logical > 1:
      # Read when jax looks for its devices, which it has not yet.
      jax.config.update('jax_num_cpu_devices', num_logical)
      os.environ['XLA_FLAGS'] = (
        f'{os.environ.get("XLA_FLAGS", "")} --xla_cpu_multi_thread_eigen=false'
      ).strip()
    first = jax.devices()
    named = {
      f'{device.platform.upper()}:{device.id}': device
      for device in {*first, *jax.devices('cpu')}
    }
    usual = first[:1] if first[0].platform == 'cpu' else first
    self._devices = [named[name] for name in devices if name in named] or usual
    described = [
      {
        'name': name,
        'kind': device.device_kind,
        'platform': device.platform,
        'bytes': _memory(device),
        'chosen': device in self._devices,
      }
      for name, device in sorted(named.items())
    ]
    return {'jax': jax.__version__, 'devices': described}, []

  def compile(
    self,
    name: str,
    arguments: list[tuple[str, list[int]]],
    outputs: list[tuple[str, list[int]]],
    arrays: list[np.ndarray],
  ) -> Answer:
    """Compiles a program, or takes it from the cache on disk.

    Args:
      name: Name for `run`.
      arguments: Dtype and shape of each argument.
      outputs: Dtype and shape of each output.
      arrays: The serialized HLO, one array of uint8.
    """
    started = time.perf_counter()
    types = [jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in arguments]

    def stand_in(*unused: jax.Array) -> tuple[jax.Array, ...]:
      return tuple(jnp.zeros(shape, dtype) for dtype, shape in outputs)

    # Its name in an export: a device of the platform `gpu` is of `cuda`.
    platform = self._devices[0].platform
    if platform != 'cpu':
      platform = jax.export.default_export_platform()
    # A program of the same type, of which the instructions are replaced.
    program = dataclasses.replace(
      jax.export.export(
        jax.jit(stand_in, keep_unused=True), platforms=[platform]
      )(*types),
      mlir_module_serialized=_jax.mlir.hlo_to_stablehlo(arrays[0].tobytes()),
    )
    (main,) = _MAIN.findall(program.mlir_module())
    if main.count('%arg') != len(types):
      raise ValueError(
        f'the program takes fewer arguments, {main.count("%arg")}, than the '
        f'client work, {len(types)}: a shape in it depends on the value of an '
        'argument, which XLA fixed'
      )
    call = jax.jit(program.call, keep_unused=True)
    self._programs[name] = [
      call.lower(*(_on(device, one) for one in types)).compile()
      for device in self._devices
    ]
    return {'seconds': time.perf_counter() - started}, []

  def keep(self, name: str, arrays: list[np.ndarray]) -> Answer:
    """Moves arrays to every device under a name, in place of earlier ones."""
    self._kept[name] = [jax.device_put(arrays, one) for one in self._devices]
    return {}, []

  def stack(
    self,
    name: str,
    size: int,
    pieces: list[tuple[str, list[int], list[int]]],
    arrays: list[np.ndarray],
  ) -> Answer:
    """Makes a stack of client states.

    Args:
      name: Name of the stack.
      size: Its rows.
      pieces: (name of a stack, or empty for the arrays; its rows; the rows of
        the new stack that they become). Other rows are zeros.
      arrays: Leaves of rows `[n, ...]`; without pieces, of the whole stack.
    """
    if not pieces:
      self._stacks[name] = jax.device_put(arrays, self._devices[0])
      return {}, []
    sources = [self._stacks[one] if one else arrays for one, *_ in pieces]
    held = [self._stacks[one][0].device for one, *_ in pieces if one]
    device = held[0] if held else self._devices[0]
    made = jax.device_put(
      [jnp.zeros((size, *leaf.shape[1:]), leaf.dtype) for leaf in sources[0]],
      device,
    )
    for leaves, (_, rows, places) in zip(sources, pieces, strict=True):
      # Few shapes: each is compiled. A place beyond the stack is left out.
      padding = (1 << (len(rows) - 1).bit_length()) - len(rows)
      made = _place(
        made,
        jax.device_put(leaves, device),
        np.array(rows + [0] * padding, np.int32),
        np.array(places + [size] * padding, np.int32),
      )
    self._stacks[name] = made
    return {}, []

  def run(
    self,
    program: str,
    shared: list[str],
    num_sums: int,
    first: int,
    old: list[str],
    new: list[str],
    arrays: list[np.ndarray],
  ) -> Answer:
    """Starts a program on every block.

    Args:
      program: Name of the program. Its arguments are those of the names, a
        stack of client states, and those of a block; its outputs the sums, the
        collected ones, and the new states.
      shared: Names of arguments that are kept, the same for all blocks.
      num_sums: Number of its first outputs that are summed over the blocks.
      first: Blocks of earlier runs; 0 starts the sums anew.
      old: Stack of each block's states; none if the program takes no states.
      new: Name of each block's new stack; likewise.
      arrays: Its last arguments, `[num_blocks, ...]`.
    """
    if not first:
      self._sums, self._collected = None, []
    for i, block in enumerate(zip(*arrays, strict=True)):
      place = (first + i) % len(self._devices)
      states = self._stacks[old[i]] if old else []
      outputs = self._programs[program][place](
        *(leaf for name in shared for leaf in self._kept[name][place]),
        *_moved(states, self._devices[place]),
        *block,
      )
      end = len(outputs) - len(states)
      if new:
        self._stacks[new[i]] = outputs[end:]
      self._collected.append(outputs[num_sums:end])
      sums = _moved(outputs[:num_sums], self._devices[0])
      self._sums = sums if self._sums is None else _add(self._sums, sums)
    return {}, []

  def finish(self) -> Answer:
    """Returns the sums, then the collected outputs stacked by block."""
    # In one call, all are on their way before the first is waited for.
    sums, collected = jax.device_get((self._sums or [], self._collected))
    self._sums, self._collected = None, []
    return {}, [*sums, *map(np.stack, zip(*collected, strict=True))]

  def fetch(self, name: str) -> Answer:
    """Returns the leaves of a stack of client states."""
    return {}, jax.device_get(self._stacks[name])


def _memory(device: jax.Device) -> int:
  """Returns the bytes of a device; of a CPU, those of the machine."""
  if device.platform == 'cpu':
    return os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  return (device.memory_stats() or {}).get('bytes_limit', 0)


def _moved(arrays: list[jax.Array], device: jax.Device) -> list[jax.Array]:
  """Returns arrays of one device on another; a call for its own takes time."""
  if arrays and arrays[0].device != device:
    return jax.device_put(arrays, device)
  return arrays


def _on(device: jax.Device, one: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(
    one.shape, one.dtype, sharding=jax.sharding.SingleDeviceSharding(device)
  )


@functools.partial(jax.jit, donate_argnums=0)
def _add(total: list[jax.Array], sums: list[jax.Array]) -> list[jax.Array]:
  return [one + other for one, other in zip(total, sums, strict=True)]


@functools.partial(jax.jit, donate_argnums=0)
def _place(
  made: list[jax.Array],
  leaves: list[jax.Array],
  rows: jax.Array,
  places: jax.Array,
) -> list[jax.Array]:
  return [
    leaf.at[places].set(source[rows], mode='drop')
    for leaf, source in zip(made, leaves, strict=True)
  ]


def main(descriptor: int, cache: str) -> None:
  """Serves until the other side closes."""
  jax.config.update('jax_compilation_cache_dir', cache)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  worker = Worker()
  with socket.socket(fileno=descriptor) as connection:
    while (message := frames.receive(connection)) is not None:
      try:
        answer, results = worker.answer(*message)
      except Exception as error:  # Its text is the program's error.
        answer = {'error': f'{type(error).__name__}: {error}'}
        results = []
      frames.send(connection, answer, results)


if __name__ == '__main__':
  main(int(sys.argv[1]), sys.argv[2])
