"""Who a committee averages and elects: CMFL's arithmetic of attackers.

Che, Li, Chen, He and Zheng (arXiv 2108.00365): the strategies of selection and
election (section 4.2) and their limits when attackers are all ranked last, as a
good committee has them, or all first, as one of attackers has them. `sizes`,
`select` and `elect` of `committee` against counting in NumPy.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.cmfl import committee

_MOST_CLIENTS = 100
_PLACES = np.arange(_MOST_CLIENTS)


def _windows(num_training, sizes):
  """Returns which places of a ranking are elected, bool `[cases, clients]`.

  Clients stand in the order of their rank; those behind `num_training` are no
  training clients. One graph for all cases, which is quicker.
  """

  def elect(case):
    return committee.elect(
      tf.constant(_PLACES, tf.float64),
      _PLACES < case[0],
      case[1],
      committee.CommitteeConfig(),
    )

  return _map(elect, (num_training, sizes))


def _tops(num_training, num_selected):
  """Returns which places of a ranking strategy I averages, as `_windows`."""

  def select(case):
    return committee.select(
      tf.constant(_PLACES, tf.float64),
      _PLACES < case[0],
      case[1],
      committee.CommitteeConfig(selection='most_similar'),
      tf.constant([0, 0]),
      tf.constant(_PLACES, tf.int32),
    )

  return _map(select, (num_training, num_selected))


def _map(choose, cases):
  mapped = tf.function(
    lambda cases: tf.map_fn(choose, cases, fn_output_signature=tf.bool)
  )
  return mapped(tuple(tf.constant(case, tf.int32) for case in cases)).numpy()


def test_every_middle_window_is_elected():
  """All 1 <= C <= n < 40, with s = floor((n - C) / 2) places before the window.

  Behind it are s or s + 1. So attackers that a committee ranks last are as many
  in it as if it ranked them first, as one of attackers does, or one fewer.
  """
  cases = [(n, size) for n in range(1, 40) for size in range(1, n + 1)]
  for (n, size), padded in zip(
    cases, _windows(*np.transpose(cases)), strict=True
  ):
    first = (n - size) // 2
    np.testing.assert_array_equal(
      np.flatnonzero(padded), first + np.arange(size)
    )


@pytest.mark.parametrize('base', committee.BASES)
def test_attackers_are_averaged_beyond_a_cliff(base):
  """Strategy I with attackers ranked last averages m - (n - attackers) of them.

  In shares: some iff alpha > (1 - omega) (1 - epsilon) of all active clients, or
  alpha + epsilon > 1 of the training ones. All 405 cells have whole numbers of
  clients, so the comparison is one of integers.
  """
  cells = list(itertools.product(range(1, 6), range(1, 10), range(1, 10)))
  sizes = [
    committee.sizes(
      _MOST_CLIENTS,
      committee.CommitteeConfig(1.0, omega / 10, alpha / 10, base),
    )
    for omega, alpha, _ in cells
  ]
  chosen = _tops(
    [one.training for one in sizes], [one.aggregated for one in sizes]
  )
  for (omega, alpha, epsilon), one, top in zip(
    cells, sizes, chosen, strict=True
  ):
    n, num_honest = one.training, one.training * (10 - epsilon) // 10
    averaged = top[num_honest:n].sum()
    assert averaged == max(0, one.aggregated - num_honest)
    if base == 'active':
      beyond = 10 * alpha > (10 - omega) * (10 - epsilon)
    else:
      beyond = alpha + epsilon > 10
    assert (averaged > 0) == beyond
