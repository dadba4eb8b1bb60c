"""The heat map of labels."""

import numpy as np
import pytest

from tests.testing import fake_facts
from tff_algos.reports.dataset import labels_plot, picture_rows


def test_cells_are_the_clients_shares():
  facts = fake_facts.make()
  axes, _ = labels_plot.draw(facts).axes
  order = picture_rows.similar_side_by_side(facts)
  expected = facts.labels[order] / facts.labels[order].sum(1, keepdims=True)
  np.testing.assert_allclose(axes.images[0].get_array(), expected)
  names = [tick.get_text() for tick in axes.get_yticklabels()]
  assert names == [facts.client_ids[i] for i in order]


def test_many_clients_are_rows_of_means():
  facts = fake_facts.make(num_clients=100_000, num_classes=62, size=10)
  axes, _ = labels_plot.draw(facts).axes
  cells = axes.images[0].get_array()
  assert cells.shape == (60, 62)
  np.testing.assert_allclose(cells.sum(axis=1), 1)
  # Rows of as good as equal size: their mean is that of all clients.
  np.testing.assert_allclose(
    cells.mean(axis=0), facts.labels.mean(axis=0) / 10, atol=1e-4
  )
  assert '100,000 clients' in axes.get_ylabel()
  assert not axes.get_yticks().size


def test_alike_clients_look_alike():
  facts = fake_facts.make(num_classes=4)
  facts.labels[:] = 10
  axes, _ = labels_plot.draw(facts).axes
  assert axes.images[0].get_clim() == (0, 0.75)


def test_a_regression_shows_mean_and_deviation():
  facts = fake_facts.make(num_classes=0, x_shape=(3,))
  (axes,) = labels_plot.draw(facts).axes
  dots = np.concatenate([d.get_offsets() for d in axes.collections])
  expected = np.column_stack([facts.clients['y_mean'], facts.clients['y_std']])
  np.testing.assert_allclose(
    sorted(map(tuple, dots)), sorted(map(tuple, expected))
  )


@pytest.mark.parametrize(
  ('options', 'caption'),
  [
    ({}, 'Labels of the training examples of each client.'),
    # Its moments are those of all splits.
    (
      {'num_classes': 0, 'x_shape': (3,)},
      'Labels of all examples of each client with training examples.',
    ),
    (
      {'num_clients': 100},
      'Labels of the training examples of each client. Each row is the mean of '
      'several similar clients.',
    ),
  ],
)
def test_the_caption_names_the_examples(options, caption):
  assert labels_plot.PICTURE.caption(fake_facts.make(**options)) == caption


def test_the_caption_counts_clients_with_examples():
  facts = fake_facts.make(num_clients=70)
  facts.sources[55:] = 0
  axes, _ = labels_plot.draw(facts).axes
  assert axes.get_ylabel().startswith('55 clients,')
  assert 'mean of several' not in labels_plot.PICTURE.caption(facts)


@pytest.mark.parametrize('text', ['x' * 10_000, 'a\nb', '$x_{$'])
def test_strange_ids(text):
  facts = fake_facts.make(num_clients=1)._replace(client_ids=(text,))
  axes, _ = labels_plot.draw(facts).axes
  (name,) = [tick.get_text() for tick in axes.get_yticklabels()]
  assert len(name) <= 16 and '\n' not in name


def test_nothing_to_draw():
  facts = fake_facts.make()
  facts.sources[:] = 0
  assert labels_plot.draw(facts) is None


def test_classes_are_named():
  options = {'classes': ['v', 'w', 'x', 'y', 'z']}
  axes, _ = labels_plot.draw(fake_facts.make(source_options=options)).axes
  names = [tick.get_text() for tick in axes.get_xticklabels()]
  assert names == [*'vwxyz']
