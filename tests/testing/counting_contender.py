"""A contender of `benchmarks` without TensorFlow: it adds 1 in every round.

Its form says how it misbehaves: `step` is added instead of 1, `dies_at` names
the round in which it raises, `sleep` is how many seconds a round takes, and
`child_mib` the memory of a process that it starts.
"""

import contextlib
import subprocess
import sys
import time

from benchmarks.contenders import program


class CountingContender:
  def __init__(self, inputs, form):
    self._weights = inputs.initial_weights
    self._form = form

  def prepare(self, round_num):
    print('a library may print', round_num)

  def run_round(self, round_num):
    if round_num == self._form.get('dies_at'):
      raise ValueError('my last words')
    time.sleep(self._form.get('sleep', 0))
    self._weights = {
      name: leaf + self._form['step'] for name, leaf in self._weights.items()
    }

  def weights(self):
    return self._weights


@contextlib.contextmanager
def _child(mib):
  code = f'import sys; held = b"x" * ({mib} << 20); print(1); sys.stdin.read()'
  with subprocess.Popen(
    [sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
  ) as child:
    child.stdout.readline()
    yield
    child.stdin.close()


@contextlib.contextmanager
def _open(inputs, form):
  with contextlib.ExitStack() as stack:
    if 'child_mib' in form:
      stack.enter_context(_child(form['child_mib']))
    yield CountingContender(inputs, form)


def _scout(inputs, form):
  del inputs
  return [({**form, 'dies_at': 1}, 2.0), (form, 1.0)]


if __name__ == '__main__':
  program.main(_open, _scout)
