"""Hands out a list to the workers of a pipeline."""

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam import pvalue


class Spread(beam.PTransform[pvalue.PBegin, pvalue.PValue]):
  """The elements of a list, spread over the workers."""

  def __init__(self, elements: Sequence[Any]) -> None:
    """Takes what is small enough to be sent to workers."""
    super().__init__()
    self._elements = elements

  def expand(self, input_or_inputs: pvalue.PBegin) -> pvalue.PValue:
    """Creates the elements; the shuffle lets every worker have some."""
    return (
      input_or_inputs
      | 'Number' >> beam.Create(list(self._elements))
      | 'Spread' >> beam.Reshuffle()
    )
