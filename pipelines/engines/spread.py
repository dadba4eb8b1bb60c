"""Beam transform that distributes the elements of a list over workers."""

from collections.abc import Sequence
from typing import Any, cast

import apache_beam as beam
from apache_beam import pvalue


class Spread(beam.PTransform[pvalue.PBegin, pvalue.PCollection[Any]]):
  """PCollection of the elements of a list, reshuffled over the workers."""

  def __init__(self, elements: Sequence[Any]) -> None:
    """Takes a list whose elements are small enough to be sent to workers."""
    super().__init__()
    self._elements = elements

  def expand(self, input_or_inputs: pvalue.PBegin) -> pvalue.PCollection[Any]:
    """Creates and reshuffles the elements."""
    spread = (
      input_or_inputs
      | 'Number' >> beam.Create(list(self._elements))
      | 'Spread' >> beam.Reshuffle()
    )
    return cast(pvalue.PCollection[Any], spread)
