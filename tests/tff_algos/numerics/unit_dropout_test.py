"""Tests of dropout: which units a step drops, and that nothing else drops any."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests.testing import index_hash
from tff_algos.core import errors, seeds
from tff_algos.numerics import unit_dropout

# The chance that a good hash fails the statistical test at another seed; here the
# seed is fixed.
_FALSE_ALARM = 1e-6
_SEED = seeds.derive_seed(1, 'train', 1, 'c0')


def _draws(epoch=0, rows=(0, 1), seed=_SEED):
  return unit_dropout.Draws(
    tf.constant(seed), tf.constant(epoch), tf.constant(rows, tf.int32)
  )


def _drop(hidden, rate=0.25, **draws):
  with unit_dropout.in_step(rate, _draws(**draws)):
    return unit_dropout.drop(tf.constant(hidden, tf.float32), 0).numpy()


def test_outside_of_a_step_every_unit_stays():
  hidden = tf.random.stateless_normal([2, 3], (0, 1))
  assert unit_dropout.drop(hidden, 0) is hidden
  assert not unit_dropout.is_in_step()
  with unit_dropout.in_step(0.0, _draws()):
    assert unit_dropout.is_in_step()
    assert unit_dropout.drop(hidden, 0) is hidden
  _drop(np.ones([2, 3]))
  assert unit_dropout.drop(hidden, 0) is hidden


def test_draws_are_of_the_seed_the_layer_the_epoch_the_row_and_the_unit():
  rows, num_units, rate = (7, 0, 3), 40, 0.6
  ones = tf.ones([len(rows), num_units])
  with unit_dropout.in_step(rate, _draws(2, rows)):
    layers = [unit_dropout.drop(ones, layer).numpy() for layer in range(2)]
  for layer, dropped in enumerate(layers):
    expected = [
      [
        index_hash.random_bits(_SEED, 0x64726F70, layer, 2, row, unit) / 2**32
        for unit in range(num_units)
      ]
      for row in rows
    ]
    stays = np.array(expected) >= rate
    assert stays.any() and not stays.all()
    # The rate is one of 2**15.
    np.testing.assert_allclose(dropped, np.where(stays, 2.5, 0), rtol=1e-4)
  assert (layers[0] != layers[1]).any()


def test_the_batch_a_row_is_in_changes_nothing():
  hidden = np.random.default_rng(0).normal(size=(4, 9))
  together = _drop(hidden, rows=(5, 1, 8, 2))
  np.testing.assert_array_equal(_drop(hidden[1:3], rows=(1, 8)), together[1:3])
  for other in ({'epoch': 1}, {'rows': (0, 1, 3, 4)}, {'seed': (5, 6)}):
    draws = {'rows': (5, 1, 8, 2), **other}
    assert (_drop(hidden, **draws) != together).any(), other


def test_a_layer_may_have_a_rate_of_its_own():
  hidden = tf.ones([2, 50])
  with unit_dropout.in_step(0.0, _draws()):
    own = unit_dropout.drop(hidden, 0, 0.25).numpy()
  np.testing.assert_array_equal(own, _drop(np.ones([2, 50]), 0.25))


def test_units_on_further_axes_have_draws_of_their_own_or_share_them():
  ones = np.ones([2, 3, 4, 5])
  with unit_dropout.in_step(0.0, _draws()):
    each = unit_dropout.drop(tf.constant(ones), 0, 0.5).numpy()
    shared = unit_dropout.drop(
      tf.constant(ones), 0, 0.5, [True, False, True]
    ).numpy()
  # The same as those of one long axis.
  flat = _drop(ones.reshape(2, 60), 0.5)
  np.testing.assert_array_equal(each.reshape(2, 60), flat)
  np.testing.assert_array_equal(
    shared,
    np.broadcast_to(
      _drop(np.ones([2, 4]), 0.5)[:, None, :, None], shared.shape
    ),
  )


@pytest.mark.parametrize('rate', [0.1, 0.6])
def test_the_rate_is_the_share_of_dropped_units(rate):
  rows = range(200)
  dropped = _drop(np.ones([len(rows), 300]), rate, rows=rows)
  count = int(np.sum(dropped == 0))
  assert stats.binomtest(count, dropped.size, rate).pvalue > _FALSE_ALARM
  # Each unit, each row: none is privileged.
  for axis in (0, 1):
    counts = np.sum(dropped == 0, axis)
    size = dropped.shape[axis]
    chances = 2 * np.minimum(
      stats.binom.cdf(counts, size, rate),
      stats.binom.sf(counts - 1, size, rate),
    )
    assert np.min(chances) * len(counts) > _FALSE_ALARM


def test_clients_are_vectorized():
  client_seeds = tf.constant(
    [seeds.derive_seed(1, 'train', 1, f'c{i}') for i in range(3)]
  )

  @tf.function(autograph=False)
  def drop(client_seeds):
    def of_one(seed):
      draws = unit_dropout.Draws(seed, tf.constant(0), tf.constant([0, 1]))
      with unit_dropout.in_step(0.25, draws):
        return unit_dropout.drop(tf.ones([2, 5]), 0)

    return tf.vectorized_map(of_one, client_seeds, fallback_to_while_loop=False)

  alone = [_drop(np.ones([2, 5]), seed=seed) for seed in client_seeds.numpy()]
  np.testing.assert_array_equal(drop(client_seeds), alone)


def test_a_network_without_a_layer_for_it_is_refused():
  text = 'unit_dropout_rate is 0.6, but the model has no layer .*; set it to 0'
  with (
    pytest.raises(errors.ConfigError, match=text),
    unit_dropout.in_step(0.6, _draws()),
  ):
    pass


def test_units_keep_their_mean_at_any_rate_that_leaves_some():
  rate = 1 - 0.75 * 2**-14  # Of 2**15 chances one or two stay; it is two.
  dropped = _drop(np.ones([500, 500]), rate, rows=range(500))
  np.testing.assert_array_equal(np.unique(dropped), [0, 2**14])
  with (
    pytest.raises(errors.ConfigError, match='must leave units, got 0.99999,'),
    unit_dropout.in_step(0.99999, _draws()),
  ):
    pass


def test_a_failure_inside_is_told_and_ends_the_step():
  with (
    pytest.raises(ZeroDivisionError),
    unit_dropout.in_step(0.6, _draws()),
  ):
    raise ZeroDivisionError
  hidden = tf.ones([2, 3])
  assert unit_dropout.drop(hidden, 0) is hidden
