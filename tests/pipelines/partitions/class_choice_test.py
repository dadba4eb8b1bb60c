import hypothesis
import numpy as np
from hypothesis import strategies

from pipelines.partitions import class_choice


@strategies.composite
def _places(draw):
  """Returns places of classes that can be met, and the number of clients."""
  num_clients = draw(strategies.integers(1, 25))
  num_classes = draw(strategies.integers(1, 12))
  num_each = draw(strategies.integers(1, num_classes))
  # Each of num_clients places of a class is free once; unlike single draws of
  # hypothesis, a permutation of them is cheap.
  generator = np.random.default_rng(draw(strategies.integers(0, 2**32)))
  free = generator.permutation(np.repeat(np.arange(num_classes), num_clients))
  places = np.bincount(free[: num_each * num_clients], minlength=num_classes)
  return places, num_clients


@hypothesis.settings(max_examples=60)
@hypothesis.given(_places(), strategies.integers(0, 100))
def test_every_place_is_taken_and_classes_are_distinct(case, seed):
  places, num_clients = case
  chosen = class_choice.draw_classes(
    places, num_clients, np.random.default_rng(seed)
  )
  assert chosen.dtype == bool
  np.testing.assert_array_equal(chosen.sum(axis=0), places)
  assert set(chosen.sum(axis=1)) == {places.sum() // num_clients}


def test_clients_are_alike():
  """Counts of 2,000 draws within 5 deviations: false alarms < 1e-4."""
  generator = np.random.default_rng(0)
  places = np.array([4, 3, 3, 2])
  counts = sum(
    class_choice.draw_classes(places, 6, generator) for _ in range(2000)
  )
  expected = np.tile(2000 * places / 6, (6, 1))
  deviation = np.sqrt(2000 * places / 6 * (1 - places / 6))
  assert np.all(np.abs(counts - expected) < 5 * deviation)
