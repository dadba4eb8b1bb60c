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
  places = np.full(num_classes, 0)
  for _ in range(num_each * num_clients):
    free = np.flatnonzero(places < num_clients)
    places[draw(strategies.sampled_from(free.tolist()))] += 1
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
