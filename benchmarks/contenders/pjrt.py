"""Our runtime `pjrt` on the CPU: the client work in a worker with jax.

Forms: `devices`. One uses all cores for each operation; of several logical ones
each has a thread of its own.
"""

from benchmarks.contenders import program, runtime
from tff_algos.runtimes.pjrt import pjrt_runtime
from tff_algos.runtimes.vectorized import devices


def _open(inputs, form):
  devices.prepare_threads()
  names = tuple(f'CPU:{i}' for i in range(form['devices']))
  return runtime.open_contender(
    inputs,
    lambda *arguments: pjrt_runtime.PjrtRuntime(*arguments, devices=names),
  )


if __name__ == '__main__':
  program.main(_open)
