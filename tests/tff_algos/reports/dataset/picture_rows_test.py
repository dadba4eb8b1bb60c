import numpy as np

from tests.testing import fake_facts
from tff_algos.reports.dataset import picture_rows


def test_similar_clients_stand_side_by_side():
  facts = fake_facts.make(num_clients=30, num_sources=3)
  order = picture_rows.similar_side_by_side(facts)
  assert sorted(order) == list(range(30))
  main = np.argmax(facts.mixture[order], axis=1)
  assert main.tolist() == sorted(main)
  labels = np.argmax(facts.labels[order], axis=1)
  assert labels.tolist() == sorted(labels)


def test_planted_clusters_come_first():
  facts = fake_facts.make(num_clients=10)
  clusters = np.array([1, 0, 0, 1, 1, 0, 1, 0, 0, 1])
  order = picture_rows.similar_side_by_side(facts._replace(clusters=clusters))
  assert clusters[order].tolist() == sorted(clusters)


def test_clients_without_examples_are_left_out():
  facts = fake_facts.make(num_clients=4)
  facts.sources[2] = 0
  facts.labels[2] = 0
  assert sorted(picture_rows.similar_side_by_side(facts)) == [0, 1, 3]


def test_few_clients_get_a_row_each():
  rows = picture_rows.cut(np.array([4, 2, 9]))
  assert [row.tolist() for row in rows.members] == [[4], [2], [9]]
  assert rows.title == '3 clients'


def test_many_clients_share_rows_and_it_says_so():
  clients = np.random.default_rng(0).permutation(100_000)
  rows = picture_rows.cut(clients)
  assert len(rows.members) == 60
  np.testing.assert_array_equal(np.concatenate(rows.members), clients)
  assert rows.title == '100,000 clients, rows are means of 1,666 or 1,667'


def test_a_row_is_the_mean_of_its_clients():
  rows = picture_rows.Rows((np.array([0, 1]), np.array([2])), '')
  shares = np.array([[0.2, 0.8], [0.4, 0.6], [1.0, 0.0]])
  np.testing.assert_allclose(rows.mean(shares), [[0.3, 0.7], [1, 0]])
  shares[1] = np.nan
  np.testing.assert_allclose(rows.mean(shares), [[0.2, 0.8], [1, 0]])


def test_shares():
  shares = picture_rows.shares_of(np.array([[1, 3], [0, 0]]))
  np.testing.assert_allclose(shares[0], [0.25, 0.75])
  assert np.isnan(shares[1]).all()
