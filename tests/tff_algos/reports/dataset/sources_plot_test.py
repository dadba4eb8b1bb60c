"""The picture of distances between source distributions."""

import dataclasses

import numpy as np
import pytest

from tests.testing import fake_facts
from tff_algos.reports.dataset import sources_plot
from tff_algos.reports.plotting import style


def _printed(axes, size):
  texts = [float(text.get_text()) for text in axes.texts]
  return np.array(texts).reshape(size, size)


def test_cells_print_distances_of_features_and_labels():
  facts = fake_facts.make(num_sources=3)
  features, labels = sources_plot.draw(facts).axes
  totals = [facts.totals['source'][name] for name in facts.schema.source_names]
  counts = np.array([total['label_counts'] for total in totals], float)
  shares = counts / counts.sum(axis=1, keepdims=True)
  for i, j in np.ndindex(3, 3):
    expected = np.abs(shares[i] - shares[j]).sum() / 2
    assert _printed(labels, 3)[i, j] == pytest.approx(expected, abs=0.006)
    a, b = (np.array(totals[s]['features']['mean']) for s in (i, j))
    variance = np.square(totals[i]['features']['std'])  # The same of all.
    shift = np.sqrt(np.mean((a - b) ** 2 / (variance + (a - b) ** 2 / 4)))
    assert _printed(features, 3)[i, j] == pytest.approx(shift, abs=0.006)


def test_a_regression_compares_what_links_label_and_features():
  facts = fake_facts.make(num_classes=0, x_shape=(3,))
  _, links = sources_plot.draw(facts).axes
  a, b = (
    np.array(total['features']['covariance_with_y'])
    for total in facts.totals['source'].values()
  )
  expected = np.linalg.norm(a - b)
  assert _printed(links, 2)[0, 1] == pytest.approx(expected, abs=0.006)


def test_a_source_without_examples_is_left_out():
  facts = fake_facts.make(num_sources=3)
  facts.totals['source']['source_1']['num_examples'] = 0
  axes, _ = sources_plot.draw(facts).axes
  ticks = axes.get_xticklabels()
  assert [tick.get_text() for tick in ticks] == ['source_0', 'source_2']
  # In the colours of the other pictures.
  assert [tick.get_color() for tick in ticks] == [*style.colors(3)[::2]]


def test_ids_of_tokens_have_no_distance():
  facts = fake_facts.make(x_shape=(5,))
  schema = dataclasses.replace(facts.schema, x_dtype='int32')
  facts = facts._replace(schema=schema)
  (labels,) = sources_plot.draw(facts).axes
  assert labels.get_title().startswith('labels')
