"""A contender of `benchmarks` without TensorFlow: it adds 1 in every round.

Its form says how it misbehaves: `step` is added instead of 1, `dies_at` names
the round in which it raises, and `sleep` is how many seconds a round takes.
"""

import contextlib
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
def _open(inputs, form):
  yield CountingContender(inputs, form)


def _scout(inputs, form):
  del inputs
  return [({**form, 'dies_at': 1}, 2.0), (form, 1.0)]


if __name__ == '__main__':
  program.main(_open, _scout)
