"""Beam steps on raw blocks: survey, and extraction of pieces."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np

from pipelines import options
from pipelines.engines import failures
from pipelines.examples import (
  cleaning,
  distributions,
  encoding,
  splits,
)
from pipelines.partitions import registry as laws
from pipelines.publishing import staging as staging_lib
from pipelines.sources import base, registry
from pipelines.steps import handover, pieces, planning, write
from tff_algos.core.structures import Array
from tff_algos.data import layout
from tff_algos.data import schema as schema_lib
from tff_algos.stores import plain_copy

NumberedBlock = tuple[int, base.Block]
KeyedPiece = tuple[pieces.Key, pieces.Piece]


def create_source(config: options.DatasetConfig) -> base.Source:
  """Returns the source of raw examples."""
  return registry.create(config.source.name, config.source.options, config.seed)


def what_is_needed(config: options.DatasetConfig) -> cleaning.Needs:
  """Returns what a dataset needs of every example."""
  return cleaning.Needs(
    label=not config.keep_unlabelled,
    client=config.partition.law == laws.NATURAL,
    group=config.splits.split_by == options.GROUP,
    time=config.splits.is_by_time,
  )


class BlockFn(beam.DoFn):
  """Base of DoFns on numbered blocks."""

  def __init__(
    self,
    config: options.DatasetConfig,
    staging: staging_lib.Staging,
    copies: Sequence[plain_copy.Copy] = (),
  ) -> None:
    """Takes what all steps need.

    Args:
      config: The dataset's config.
      staging: Staging folder.
      copies: Copies of raw data that a worker may have to make first.
    """
    self._config = config
    self._staging = staging
    self._copies = tuple(copies)
    # Not looked up by name in the workers: they import the module of its class,
    # which may be a plug-in's, as they unpickle it.
    self._source = create_source(config)

  def setup(self) -> None:
    """Copies raw data; called by each worker before the first block."""
    self._held = contextlib.ExitStack()
    with failures.carried():
      for copy in self._copies:
        self._held.enter_context(plain_copy.held_elsewhere(copy))

  def teardown(self) -> None:
    """Gives the copies up."""
    self._held.close()

  def _clean(
    self, block: base.Block
  ) -> tuple[cleaning.CleanBlock, list[cleaning.DeadLetter]]:
    return cleaning.clean(
      block,
      self._source.read(block),
      self._source.features(),
      what_is_needed(self._config),
      self._source.feature_spec(),
    )


class SurveyBlock(BlockFn):
  """DoFn: block -> its number; writes the survey of its examples."""

  def process(self, numbered: NumberedBlock) -> Iterator[int]:
    """Surveys one block."""
    number, block = numbered
    with failures.carried():
      sound, dead = self._clean(block)
      letters = [cleaning.locate(letter, self._source) for letter in dead]
      if self._config.redact_dead_letters:
        letters = [cleaning.redact(letter) for letter in letters]
      handover.write_survey(self._staging, number, sound, letters)
    yield number


class ExtractPieces(BlockFn):
  """DoFn: block -> runs of its stored pieces, keyed by output file."""

  # Not a property: Beam looks at the properties of a DoFn before it runs.
  _encoder: encoding.Encoder | None = None

  def process(
    self, numbered: NumberedBlock
  ) -> Iterator[tuple[pieces.Key, pieces.Run]]:
    """Extracts and stores the pieces of one block."""
    with failures.carried():
      keyed = self._pieces(*numbered)
      runs = pieces.save(self._staging, numbered[0], keyed)
    yield from runs

  def _pieces(self, number: int, block: base.Block) -> Iterator[KeyedPiece]:
    """Yields the examples transformed by every source distribution."""
    sound, _ = self._clean(block)
    plan = handover.read_plan(self._staging, number)
    held_out = plan.roles == splits.HELD_OUT
    # Held-out examples of a client are its test examples.
    split = np.where(held_out, splits.TEST, plan.roles).astype(np.int8)
    for s, distribution in enumerate(self._distributions):
      stored = self._encoded(sound.x, plan.owners[s])
      x, y = distribution.transform(stored, sound.y)
      everything = pieces.Piece(
        schema_lib.StoredExamples(
          x, y, np.full(len(y), s, np.int32), sound.key
        ),
        client=plan.owners[s],
        split=split,
        position=plan.start + np.arange(len(y)),
      )
      native = s // self._config.distributions.num_views
      shown = planning.is_shown_by(sound.native_source, native)
      yield (layout.HELD_OUT, s), pieces.select(everything, shown & held_out)
      shards = planning.shard_of(
        plan.owners[s], int(plan.num_clients), self._config.num_shards
      )
      for shard in range(self._config.num_shards):
        rows = (plan.owners[s] != planning.NOBODY) & (shards == shard)
        # Emitted even if empty: every file expects a run of every block.
        yield (write.CLIENTS, shard), pieces.select(everything, rows)

  def _encoded(self, x: cleaning.Inputs, owners: Array) -> Array:
    """Returns the stored form of examples."""
    if not isinstance(x, Mapping):
      return x
    if self._encoder is None:
      self._encoder = handover.read_encoder(self._staging)
    return self._encoder.encode(x, owners)

  @functools.cached_property
  def _distributions(self) -> tuple[distributions.Distribution, ...]:
    return distributions.build_distributions(
      self._config.distributions, self._source, self._config.seed
    )
