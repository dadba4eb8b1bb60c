"""The picture of examples, or of features that are no images."""

import dataclasses

import numpy as np
import pytest

from tests.testing import fake_facts
from tff_algos.reports.dataset import samples_plot


@pytest.mark.parametrize('channels', [1, 3])
def test_a_row_of_images_for_each_source(channels):
  facts = fake_facts.make(num_sources=3, x_shape=(4, 6, channels))
  axes = samples_plot.draw(facts).axes
  # The mean, and two images of each of five classes.
  titles = [a.get_title('center') for a in axes]
  assert titles == ['mean', *'0011223344'] * 3
  expected = []
  for total, samples in zip(
    facts.totals['source'].values(), facts.samples, strict=True
  ):
    mean = np.reshape(total['features']['mean'], (4, 6, channels))
    expected += [mean, *samples.x[[0, 5, 1, 6, 2, 7, 3, 8, 4, 9]]]
  images = [a.images[0] for a in axes]
  np.testing.assert_allclose(
    np.reshape([image.get_array() for image in images], np.shape(expected)),
    (np.array(expected) + 1) / 4,  # Examples are in -1..3.
    rtol=1e-6,
  )
  if channels == 1:
    assert {image.get_clim() for image in images} == {(0, 1)}


def test_examples_of_as_many_classes_as_there_are():
  y = np.array([3] * 50 + [1] * 2 + [7])
  assert y[samples_plot.choose(y, 5)].tolist() == [1, 1, 3, 3, 7]
  assert y[samples_plot.choose(y, 100)].tolist() == sorted(y)
  assert samples_plot.choose(y[:0], 3).size == 0


def test_images_with_classes_at_two_places():
  facts = fake_facts.make(x_shape=(4, 6, 1))
  samples = [
    one._replace(y=np.stack([one.y, one.y[::-1]], axis=1))
    for one in facts.samples
  ]
  axes = samples_plot.draw(facts._replace(samples=samples)).axes
  titles = [a.get_title('center') for a in axes][:11]
  pairs = ['0 4', '1 3', '2 2', '3 1', '4 0']
  assert titles == ['mean', *sorted(2 * pairs)]


@pytest.mark.parametrize(
  ('num_classes', 'right'), [(0, 'covariance_with_y'), (5, 'std')]
)
def test_vectors_show_moments_by_feature(num_classes, right):
  facts = fake_facts.make(num_classes=num_classes, x_shape=(6,))
  panels = samples_plot.draw(facts).axes
  for axes, key in zip(panels, ('mean', right), strict=True):
    expected = [
      value
      for total in facts.totals['source'].values()
      for value in total['features'][key]
    ]
    heights = [bar.get_height() for bar in axes.patches]
    np.testing.assert_allclose(heights, expected)


def test_many_features_are_lines():
  facts = fake_facts.make(x_shape=(9, 128))
  left, right = samples_plot.draw(facts).axes
  assert len(left.lines) == len(right.lines) == 2
  assert len(left.lines[0].get_ydata()) == 9 * 128


def test_means_that_differ_by_little_look_so():
  facts = fake_facts.make(x_shape=(6,))
  for total in facts.totals['source'].values():
    total['features'].update(mean=[0.001] * 6, std=[1.0] * 6)
  left, _ = samples_plot.draw(facts).axes
  assert left.get_ylim() == (-1, 1)


def test_nothing_to_draw():
  facts = fake_facts.make()
  empty = tuple(
    examples._replace(y=examples.y[:0]) for examples in facts.samples
  )
  assert samples_plot.draw(facts._replace(samples=empty)) is None


def test_ids_of_tokens_are_not_drawn():
  facts = fake_facts.make(x_shape=(6,))
  schema = dataclasses.replace(facts.schema, x_dtype='int32')
  assert samples_plot.draw(facts._replace(schema=schema)) is None


def test_classes_and_features_are_named():
  options = {'classes': [*'abcd', 'a long name'], 'feature_columns': [*'wxyz']}
  facts = fake_facts.make(x_shape=(2, 2, 1), source_options=options)
  titles = [a.get_title('center') for a in samples_plot.draw(facts).axes[:11]]
  assert titles == ['mean', *'aabbccdd', 'a long n…', 'a long n…']
  facts = fake_facts.make(x_shape=(4,), source_options=options)
  for axes in samples_plot.draw(facts).axes:
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == [*'wxyz']
