"""Refuses `==` and `!=` between tensors in the package, in all tests.

In the graphs that TFF traces they are Python's identity: a stage that compares
tensors with them gives the same results eagerly and in `tf.function`, and others
on the runtime `tff`. Unlike a rule of a linter this sees the types, in every
line that any test runs.

A pytest plugin.
"""

import functools
import pathlib
import sys

import pytest

_PACKAGE = str(pathlib.Path(__file__).parents[2] / 'tff_algos')
_REPLACEMENTS = {'__eq__': 'tf.equal', '__ne__': 'tf.not_equal'}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
  """Guards TensorFlow, once it is imported."""
  if 'tensorflow' in sys.modules:
    tensor_class = sys.modules['tensorflow'].Tensor
    if not hasattr(tensor_class.__eq__, 'is_guarded'):
      for name in _REPLACEMENTS:
        setattr(tensor_class, name, _guarded(name, getattr(tensor_class, name)))


def _guarded(name, compare):

  @functools.wraps(compare)
  def compare_outside_package(tensor, other):
    caller = sys._getframe(1).f_code.co_filename
    if caller.startswith(_PACKAGE):
      raise TypeError(
        f'{caller} compares tensors by {name}, which is identity in the graphs '
        f'of TFF; use {_REPLACEMENTS[name]}'
      )
    return compare(tensor, other)

  compare_outside_package.is_guarded = True
  return compare_outside_package
