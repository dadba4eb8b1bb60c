"""The reading of CMFL's Theorem 1, on quadratic objectives.

Che, Li, Chen, He and Zheng (arXiv 2108.00365), section 5 and appendix: what its
Remark says of the strategies: I averages clients of low loss (a small phi, Eq. 10)
and is slow, II those of high loss and is fast. The theorem's bound itself is tested
with algorithms.cmfl.bounds.
"""

import numpy as np
import pytest
import tensorflow as tf

from tff_algos.algorithms.cmfl import bounds, committee


def _squares(vectors):
  return (vectors**2).sum(axis=-1)


_WHO = {
  'most_similar': lambda ranked, m: ranked[:m],
  'least_similar': lambda ranked, m: ranked[-m:],
  # Training clients come in random order before they are ranked.
  'random': lambda ranked, m: np.sort(ranked)[:m],
  'all': lambda ranked, m: ranked,
}


def _rounds(problem, selection, sizes, start, rates, seed):
  """Yields w, training clients in a random order, members and who is averaged.

  CMFL with full gradients and equal weights, written out in NumPy.
  """
  generator = np.random.default_rng(seed)
  num_clients = len(problem.weights)
  w = start
  members = generator.permutation(num_clients)[: sizes.committee]
  first = (sizes.training - sizes.committee) // 2
  for rate in rates:
    others = generator.permutation(num_clients)
    training = others[~np.isin(others, members)][: sizes.training]
    gradients = problem.gradients(w)
    distances = _squares(gradients[training] - gradients[members].mean(axis=0))
    order = np.argsort(distances, kind='stable')
    selected = training[_WHO[selection](order, sizes.aggregated)]
    yield w, training, members, selected
    w = w - rate * gradients[selected].mean(axis=0)
    members = training[order][first : first + sizes.committee]


def _run(*args):
  """Returns the points and the selected clients of all rounds."""
  rounds = list(_rounds(*args))
  return np.array([one[0] for one in rounds]), [one[3] for one in rounds]


def _sizes(num_clients, base):
  """Half of the clients are active, alpha = omega = 40 %."""
  return committee.sizes(
    num_clients, committee.CommitteeConfig(0.5, 0.4, 0.4, base)
  )


def _two_clusters(seed):
  """Returns 1/2 |w - b_k|^2: 32 b_k around 0, 8 around a point 3 away."""
  centers = np.random.default_rng(seed).normal(size=(40, 4)) * 0.3
  centers[:8, 0] += 3
  return bounds.Objectives(
    np.tile(np.eye(4), (40, 1, 1)), centers, np.zeros(40), np.full(40, 1 / 40)
  )


def _common_and_rare(seed):
  """Returns least squares of 100 clients with one solution, so Gamma = 0.

  80 clients have features 0 to 9 and a tenth of 10 to 19, 20 the reverse.
  """
  generator = np.random.default_rng(seed)
  scale = np.where(np.arange(20) < 10, 1, 0.1)
  scales = np.where(np.arange(100)[:, np.newaxis] < 80, scale, scale[::-1])
  x = generator.normal(size=(100, 50, 20)) * scales[:, np.newaxis]
  solution = generator.normal(size=20)
  return bounds.Objectives(
    np.einsum('kni,knj->kij', x, x, optimize=True) / 50,
    np.tile(solution, (100, 1)),
    np.zeros(100),
    np.full(100, 1 / 100),
  )


@pytest.mark.parametrize('selection', ['most_similar', 'least_similar', 'all'])
def test_the_simulation_chooses_as_the_stages_do(selection):
  """20 rounds: who is averaged, their mean, who is elected; to 1e-12."""
  problem, sizes = _common_and_rare(0), _sizes(100, 'training')
  rates, clients = [0.05] * 20, np.arange(100)
  rounds = list(_rounds(problem, selection, sizes, np.zeros(20), rates, 0))
  flags = lambda field: np.array(
    [np.isin(clients, one[field]) for one in rounds]
  )
  config = committee.CommitteeConfig(selection=selection)

  def choose(case):
    updates, is_training, is_member = case
    distances = committee.mean_distances((updates,), is_member, 'squared')
    chosen = committee.select(
      distances,
      is_training,
      tf.constant(sizes.aggregated),
      config,
      tf.constant([0, 0]),
      tf.constant(clients, tf.int32),
    )
    elected = committee.elect(
      distances, is_training, tf.constant(sizes.committee), config
    )
    ones = tf.ones([100], tf.float64)
    (mean,), _ = committee.average((updates,), ones, chosen)
    return chosen, elected, mean

  points = np.array([one[0] for one in rounds])
  mapped = tf.function(
    lambda cases: tf.map_fn(
      choose, cases, fn_output_signature=(tf.bool, tf.bool, tf.float64)
    )
  )
  updates = np.array([problem.gradients(w) for w in points])
  chosen, elected, means = mapped(
    tuple(map(tf.constant, (updates, flags(1), flags(2))))
  )
  np.testing.assert_array_equal(chosen, flags(3))
  np.testing.assert_array_equal(elected[:-1], flags(2)[1:])
  np.testing.assert_allclose(
    points[:-1] - 0.05 * means[:-1], points[1:], rtol=1e-12, atol=1e-12
  )


def test_skewed_selection_stalls_above_the_minimum():
  """Two clusters of clients, 80 to 20 %, a step that falls as the theorem's.

  Gaps are means over a tenth of the rounds, of one seed, so nothing is left to
  chance. Both strategies stay far from F^*, II farther than I, where all
  training clients, or random ones, come as near as 1 / T lets them: a high phi
  alone is no advantage where clients disagree.
  """
  problem, sizes = _two_clusters(0), _sizes(40, 'training')
  assert (sizes.committee, sizes.training, sizes.aggregated) == (8, 12, 5)
  rates = [bounds.step(1.0, 4.0, t) for t in range(1000)]
  early, late, skew = {}, {}, {}
  for who in _WHO:
    points, selected = _run(problem, who, sizes, np.full(4, 3.0), rates, 0)
    gaps = 0.5 * _squares(points - problem.minimizer)
    early[who], late[who] = gaps[90:100].mean(), gaps[900:].mean()
    skew[who] = np.mean(
      [problem.skew(s, w, 0.0) for s, w in zip(selected, points, strict=True)]
    )
  assert 0.1 < late['most_similar'] < 0.2 < 0.4 < late['least_similar'] < 0.5
  for who in ('most_similar', 'least_similar'):
    assert late[who] > 0.8 * early[who]
  for who in ('random', 'all'):
    assert late[who] < 0.01
    assert late[who] < early[who] / 2
    assert 1 < skew[who] < 1.15
  assert skew['most_similar'] < 0.2
  assert 0.9 < skew['least_similar'] < 1.15


@pytest.mark.parametrize('base', committee.BASES)
def test_strategies_of_clients_that_agree_on_the_minimum(base):
  """Without heterogeneity II is faster than random clients, and these than I.

  Two seeds, 300 rounds, each compared by itself; 12 (of the training clients)
  or 20 (of all active ones) of 30 are averaged. I leaves the rare clients
  behind. Strategy II has a higher mean phi than random selection where 20 are
  averaged; where 12 are, that does not hold: it soon turns from one kind of
  clients to the other, and is faster nevertheless.
  """
  sizes = _sizes(100, base)
  assert sizes.aggregated == {'training': 12, 'active': 20}[base]
  for seed in range(2):
    problem = _common_and_rare(seed)
    assert problem.heterogeneity < 1e-12
    loss, skew = {}, {}
    for who in ('most_similar', 'random', 'least_similar'):
      points, selected = _run(
        problem, who, sizes, np.zeros(20), [0.05] * 300, seed
      )
      values = problem.values(points[-1])
      loss[who] = values.mean()
      skew[who] = np.mean(
        [problem.skew(s, w, 0.0) for s, w in zip(selected, points, strict=True)]
      )
      if who == 'most_similar':
        assert values[80:].mean() > 50 * values[:80].mean()
    assert 10 * loss['least_similar'] < loss['random'] < 0.01
    assert loss['most_similar'] > 0.3
    assert skew['most_similar'] < 0.2 < 1 < skew['random'] < 1.2
    if base == 'active':
      assert skew['least_similar'] > 1.4
