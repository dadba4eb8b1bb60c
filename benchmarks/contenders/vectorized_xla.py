"""Our `vectorized` runtime with its clients compiled by XLA."""

from benchmarks.contenders import program, runtime
from tff_algos.runtimes.vectorized import devices, vectorized_runtime


def _open(inputs, form):
  del form
  devices.prepare_threads()
  config = vectorized_runtime.VectorizedConfig(xla=True)
  return runtime.open_contender(
    inputs,
    lambda *arguments: vectorized_runtime.VectorizedRuntime(*arguments, config),
  )


if __name__ == '__main__':
  program.main(_open)
