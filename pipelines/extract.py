"""The steps that look at raw blocks: a survey, then the pieces to write."""

import functools
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np

from pipelines import (
  cleaning,
  distributions,
  handover,
  options,
  planning,
  splits,
  write,
)
from pipelines import staging as staging_lib
from pipelines.sources import base, registry
from tff_algos.data import layout
from tff_algos.data import schema as schema_lib

NumberedBlock = tuple[int, base.Block]
KeyedPiece = tuple[tuple[str, int], write.Piece]


def create_source(config: options.DatasetConfig) -> base.Source:
  """Returns the source of raw examples."""
  return registry.create(config.source.name, config.source.options, config.seed)


class Blocks(beam.PTransform):
  """The numbered blocks of a source, spread over the workers."""

  def __init__(self, blocks: Sequence[base.Block]):
    super().__init__()
    self._blocks = blocks

  def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
    """Creates the blocks; the shuffle lets every worker have some."""
    return (
      begin
      | 'Number' >> beam.Create(list(enumerate(self._blocks)))
      | 'Spread' >> beam.Reshuffle()
    )


class _BlockFn(beam.DoFn):
  """A step on numbered blocks."""

  def __init__(
    self, config: options.DatasetConfig, staging: staging_lib.Staging
  ):
    self._config = config
    self._staging = staging

  @functools.cached_property
  def _source(self) -> base.Source:
    return create_source(self._config)

  def _clean(self, block: base.Block):
    return cleaning.clean(
      block, self._source.read(block), self._source.features()
    )


class SurveyBlock(_BlockFn):
  """Block -> its number; writes what the plan must know of its examples."""

  def process(self, numbered: NumberedBlock) -> Iterator[int]:
    """Surveys one block."""
    number, block = numbered
    handover.write_survey(self._staging, number, *self._clean(block))
    yield number


class ExtractPieces(_BlockFn):
  """Block -> its examples as every distribution shows them, keyed by file."""

  def process(self, numbered: NumberedBlock) -> Iterator[KeyedPiece]:
    """Extracts the pieces of one block."""
    number, block = numbered
    sound, _ = self._clean(block)
    plan = handover.read_plan(self._staging, number)
    for s, distribution in enumerate(self._distributions):
      x, y = distribution.transform(sound.x, sound.y)
      everything = write.Piece(
        schema_lib.StoredExamples(
          x, y, np.full(len(y), s, np.int32), sound.key
        ),
        client=plan.owners[s],
        split=plan.roles,
        position=plan.start + np.arange(len(y)),
      )
      shown = planning.is_shown_by(sound.native_source, s)
      held_out = shown & (plan.roles == splits.HELD_OUT)
      yield (layout.HELD_OUT, s), write.select(everything, held_out)
      shards = planning.shard_of(
        plan.owners[s], plan.num_clients, self._config.num_shards
      )
      for shard in range(self._config.num_shards):
        rows = (plan.owners[s] != planning.NOBODY) & (shards == shard)
        # The first block speaks for every shard: one without any example
        # must be written too.
        if rows.any() or number == 0:
          yield (write.CLIENTS, shard), write.select(everything, rows)

  @functools.cached_property
  def _distributions(self) -> tuple[distributions.Distribution, ...]:
    return distributions.build_distributions(
      self._config.distributions, self._source, self._config.seed
    )
