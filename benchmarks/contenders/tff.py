"""Our `tff` runtime with its default options."""

from benchmarks.contenders import program, runtime
from tff_algos.runtimes.tff import tff_runtime


def _open(inputs, form):
  del form
  return runtime.open_contender(inputs, tff_runtime.TffRuntime)


if __name__ == '__main__':
  program.main(_open)
