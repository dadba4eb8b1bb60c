"""The contender's side of the talk with the harness.

The harness writes one JSON line a request to the program's standard input and
reads one line of answer from its standard output. The program ends when its
input ends, so it never outlives the harness by more than a round.

NumPy and the standard library only: a contender may live in an environment
without TensorFlow.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from benchmarks import workload as workload_lib


class Contender(Protocol):
  """What the harness asks of a contender."""

  def prepare(self, round_num: int) -> None:
    """Readies the batch order of a round; not timed."""

  def run_round(self, round_num: int) -> None:
    """Runs a whole round; timed. The result is there when it returns."""

  def weights(self) -> Mapping[str, np.ndarray]:
    """Returns the weights after the last round."""


# (inputs, form) -> a contender, built (this is timed) and ended by the block.
Opener = Callable[
  [workload_lib.Inputs, Mapping[str, Any]], AbstractContextManager[Contender]
]
# (inputs, form) -> [(form, seconds of a round)].
Scout = Callable[
  [workload_lib.Inputs, Mapping[str, Any]], list[tuple[dict[str, Any], float]]
]


def main(open_contender: Opener, scout: Scout | None = None) -> None:
  """Serves the harness until its standard input ends.

  Args:
    open_contender: Builds the contender.
    scout: Tries forms; for contenders that have several.
  """
  parser = argparse.ArgumentParser()
  parser.add_argument('--folder', type=pathlib.Path, required=True)
  parser.add_argument('--form', type=json.loads, default={})
  options = parser.parse_args()
  answer = _private_stdout()
  inputs = workload_lib.Inputs(options.folder)
  if inputs.workload.algorithm != workload_lib.BATCHING:
    _ = inputs.examples  # Made now, so that nobody is timed for it.
  with contextlib.ExitStack() as stack:
    answer({'ready': True})
    contender = None
    for line in sys.stdin:
      request = json.loads(line)
      start = time.perf_counter()
      if request['op'] == 'build':
        contender = stack.enter_context(open_contender(inputs, options.form))
        answer({'seconds': time.perf_counter() - start})
      elif request['op'] == 'round':
        answer({'seconds': _time_round(contender, request['round_num'])})
      elif request['op'] == 'weights':
        np.savez(request['path'], **contender.weights())
        answer({})
      elif request['op'] == 'scout':
        answer({'forms': scout(inputs, options.form)})


def _time_round(contender: Contender, round_num: int) -> float:
  contender.prepare(round_num)
  start = time.perf_counter()
  contender.run_round(round_num)
  return time.perf_counter() - start


def _private_stdout() -> Callable[[Any], None]:
  """Keeps standard output for answers; what libraries print goes to stderr."""
  private = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)

  def answer(message: Any) -> None:
    private.write(json.dumps(message) + '\n')
    private.flush()

  return answer
