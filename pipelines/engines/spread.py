"""Beam transform that distributes the elements of a list over workers."""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam


def spread(elements: Iterable[Any]) -> Any:
  """Returns the transform to a PCollection of elements, reshuffled."""
  return beam.Create([*elements]) | beam.Reshuffle()
