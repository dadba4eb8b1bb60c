import numpy as np
import pytest
import scipy.stats

from pipelines.sources import base, registry
from tff_algos.core import errors


def _source(seed=0, **options):
  return registry.create('softmax_groups', options, seed)


def _examples(source, count):
  return list(source.read(base.Block('all', 0, count)))


def test_group_means():
  """pFedKM: -1.5, 0 and 1.5; five deviations of a mean of 2,000."""
  source = _source(num_clients_per_group=2000)
  for group, center in enumerate((-1.5, 0, 1.5)):
    clients = [source.client(2000 * group + i) for i in range(2000)]
    offsets = np.array([client.offset for client in clients])
    assert {client.group for client in clients} == {group}
    assert abs(offsets.mean() - center) < 5 * 0.5 / np.sqrt(2000)
    # The chi-square of 2,000 leaves these quantiles once in 500,000.
    low, high = scipy.stats.chi2(1999).ppf([1e-6, 1 - 1e-6])
    assert low < np.sum((offsets - offsets.mean()) ** 2) / 0.25 < high


def test_feature_means_and_variances():
  """Sigma_jj = j^-1.2; every bound fails by chance once in 30,000 runs.

  60 features, 5 deviations each (6e-7 by two sides) for means and variances.
  """
  source = _source(num_groups=1, num_clients_per_group=1, min_examples=20_000)
  client = source.client(0)
  x = np.stack([e.x for e in _examples(source, 20_000)]).astype(float)
  variances = np.arange(1, 61) ** -1.2
  error = (x.mean(axis=0) - client.mean) / np.sqrt(variances / 20_000)
  assert np.max(np.abs(error)) < 5
  relative = x.var(axis=0) / variances - 1
  assert np.max(np.abs(relative)) < 5 * np.sqrt(2 / 20_000)


def test_client_means_are_around_the_offset():
  """v_k ~ N(B_k, 1): 60 * 200 draws; Kolmogorov-Smirnov, once in a million."""
  source = _source(num_clients_per_group=67)
  deviations = np.concatenate(
    [source.client(i).mean - source.client(i).offset for i in range(200)]
  )
  assert scipy.stats.kstest(deviations, 'norm').pvalue > 1e-6


def test_labels_are_of_the_clients_own_softmax():
  source = _source(min_examples=150)
  examples = _examples(source, 150)
  client = source.client(0)
  x = np.stack([e.x for e in examples]).astype(float)
  logits = np.einsum('nf,fc->nc', x, client.weights) + client.biases
  np.testing.assert_array_equal([e.y for e in examples], logits.argmax(axis=1))
  # The weights of another client know nothing of them.
  other = source.client(1)
  found = (x @ other.weights + other.biases).argmax(axis=1)
  assert np.mean(found == [e.y for e in examples]) < 0.9


def test_labels_do_not_change_with_the_mean_of_the_model():
  """pFedKM: mu_k adds the same to all logits."""
  with_mean, without = (_source(alpha=a, max_examples=99) for a in (0.5, 0.0))
  assert np.any(with_mean.client(0).weights != without.client(0).weights)
  labels = [[e.y for e in _examples(s, 2000)] for s in (with_mean, without)]
  assert labels[0] == labels[1]


def test_most_frequent_class_of_a_client():
  """pFedKM: about 85 % on average over the clients.

  The shares of single clients spread by some 0.17, so a mean of 60 spreads by
  0.022: 4.5 deviations.
  """
  source = _source(max_examples=300)
  labels = {}
  for block in source.blocks():
    for example in source.read(block):
      labels.setdefault(example.client, []).append(example.y)
  shares = [np.bincount(y).max() / len(y) for y in labels.values()]
  assert len(shares) == 60
  assert abs(np.mean(shares) - 0.85) < 0.1


def test_sizes():
  """Lognormal above 50: median 50 + floor(e^4) = 104, 4,000 clients.

  The sign test around the median fails by chance once in a million.
  """
  source = _source(num_groups=1, num_clients_per_group=4000)
  sizes = np.array(source._client_sizes())
  assert sizes.min() >= 50
  low, high = scipy.stats.binom(4000, 0.5).ppf([5e-7, 1 - 5e-7])
  share = scipy.stats.lognorm(2, scale=np.exp(4)).cdf(55)
  assert low < np.sum(sizes < 105) * 0.5 / share < high
  assert max(_source(max_examples=60)._client_sizes()) == 60


def test_groups_are_distributions_and_clients_have_names():
  source = _source(max_examples=50)
  assert source.native_source_names() == ('group_0', 'group_1', 'group_2')
  last = list(source.read(base.Block('all', 59 * 50, 60 * 50)))
  assert {e.client for e in last} == {'group_2_client_019'}
  assert {e.native_source for e in last} == {2}
  offsets = source.facts()['offsets']
  assert offsets['group_2_client_019'] == source.client(59).offset
  assert len(offsets) == 60


def test_points_do_not_depend_on_the_block_but_on_the_seed():
  source = _source()
  whole, part = _examples(source, 5), list(source.read(base.Block('all', 3, 5)))
  np.testing.assert_array_equal(whole[3].x, part[0].x)
  assert np.any(_examples(_source(1), 1)[0].x != whole[0].x)


@pytest.mark.parametrize(
  'options',
  [
    {'num_groups': 0},
    {'num_clients_per_group': 0},
    {'num_features': 0},
    {'num_classes': 1},
    {'alpha': -1.0},
    {'beta': 0.0},
    {'min_examples': 0},
    {'max_examples': 0},
  ],
)
def test_bad_options(options):
  with pytest.raises(errors.ConfigError, match=next(iter(options))):
    _source(**options)
