"""Hands out a list to the workers of a pipeline."""

from collections.abc import Sequence
from typing import Any

import apache_beam as beam


class Spread(beam.PTransform):
  """The elements of a list, spread over the workers."""

  def __init__(self, elements: Sequence[Any]):
    """Takes what is small enough to be sent to workers."""
    super().__init__()
    self._elements = elements

  def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
    """Creates the elements; the shuffle lets every worker have some."""
    return (
      begin
      | 'Number' >> beam.Create(list(self._elements))
      | 'Spread' >> beam.Reshuffle()
    )
