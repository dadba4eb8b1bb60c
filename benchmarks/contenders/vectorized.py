"""Our `vectorized` runtime with its default options."""

from benchmarks.contenders import program, runtime
from tff_algos.runtimes.vectorized import devices, vectorized_runtime


def _open(inputs, form):
  del form
  devices.prepare_threads()
  return runtime.open_contender(inputs, vectorized_runtime.VectorizedRuntime)


if __name__ == '__main__':
  program.main(_open)
