"""Intermediate files between the steps of a build.

One file per block, handed over as a whole: a step that a runner executes twice
leaves the same files. The folder is removed at the end.
"""

import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pipelines.examples import cleaning, encoding
from pipelines.publishing import staging as staging_lib
from pipelines.steps import planning
from tff_algos.core import header_lock
from tff_algos.core.structures import Array
from tff_algos.data import schema as schema_lib
from tff_algos.features import spec as spec_lib


class BlockPlan(NamedTuple):
  """The part of a plan for the valid examples of one block.

  Attributes:
    roles: See `planning.Plan`, `[n]`.
    owners: See `planning.Plan`, `[num_sources, n]`.
    start: Number of valid examples in earlier blocks, int64 `[]`.
    num_clients: Number of clients of the plan, int64 `[]`.
    num_participating: Number of participating ones, which come first, int64
      `[]`.
  """

  roles: Array
  owners: Array
  start: Array
  num_clients: Array
  num_participating: Array


def write_survey(
  staging: staging_lib.Staging,
  number: int,
  sound: cleaning.CleanBlock,
  dead: Sequence[cleaning.DeadLetter],
) -> None:
  """Writes the survey of the examples of a block."""
  survey = planning.Survey(
    **{name: getattr(sound, name) for name in planning.Survey._fields}
  )
  _save(staging, staging.part('survey', number), survey._asdict())
  with staging.handing_over(staging.part('dead', number)) as path:
    path.write_text(json.dumps(dead))


def read_surveys(
  staging: staging_lib.Staging, num_blocks: int
) -> tuple[list[planning.Survey], list[cleaning.DeadLetter]]:
  """Returns the survey of each block, and all dead letters in order."""

  def read(
    number: int,
  ) -> tuple[planning.Survey, list[cleaning.DeadLetter]]:
    survey = _load(staging, staging.part('survey', number))
    rows = json.loads(staging.read(staging.part('dead', number)))
    letters = [cleaning.DeadLetter(*row) for row in rows]
    return planning.Survey(**survey), letters

  surveys: list[planning.Survey] = []
  letters: list[cleaning.DeadLetter] = []
  for survey, dead in staging_lib.in_threads(read, range(num_blocks)):
    surveys.append(survey)
    letters += dead
  return surveys, letters


def write_plan(
  staging: staging_lib.Staging, plan: planning.Plan, block_sizes: Sequence[int]
) -> None:
  """Writes each block's part of a plan.

  Args:
    staging: Staging folder.
    plan: Plan for all valid examples.
    block_sizes: Number of valid examples of each block.
  """
  ends = np.cumsum(block_sizes, dtype=np.int64)

  def write(number: int) -> None:
    start, size = int(ends[number]) - block_sizes[number], block_sizes[number]
    block_plan = BlockPlan(
      roles=plan.roles[start : start + size],
      owners=plan.owners[:, start : start + size],
      start=np.array(start, np.int64),
      num_clients=np.array(len(plan.client_ids), np.int64),
      num_participating=np.array(
        plan.groups.count(schema_lib.PARTICIPATING), np.int64
      ),
    )
    _save(staging, staging.part('plan', number), block_plan._asdict())

  for _ in staging_lib.in_threads(write, range(len(block_sizes))):
    pass


def read_plan(staging: staging_lib.Staging, number: int) -> BlockPlan:
  """Returns the plan for the valid examples of a block."""
  return BlockPlan(**_load(staging, staging.part('plan', number)))


def write_fitted(staging: staging_lib.Staging, fitted: encoding.Fitted) -> None:
  """Writes a fitted feature spec."""
  arrays = {
    'client_mean': fitted.client_mean,
    'client_deviation': fitted.client_deviation,
  }
  _save(staging, staging.work / 'client_statistics', arrays)
  with staging.handing_over(staging.work / 'features.json') as path:
    path.write_text(json.dumps(fitted.spec.to_dict()))


def read_encoder(staging: staging_lib.Staging) -> encoding.Encoder:
  """Returns the encoder of raw columns."""
  values = json.loads(staging.read(staging.work / 'features.json'))
  spec = spec_lib.FeatureSpec.from_dict(values)
  arrays = _load(staging, staging.work / 'client_statistics')
  return encoding.Encoder(encoding.Fitted(spec, **arrays))


def _save(
  staging: staging_lib.Staging, path: pathlib.Path, arrays: Mapping[str, Array]
) -> None:
  with staging.handing_over(path) as temporary, open(temporary, 'wb') as file:
    np.savez(file, **arrays)


def _load(staging: staging_lib.Staging, path: pathlib.Path) -> dict[str, Array]:
  content = io.BytesIO(staging.read(path))
  with header_lock.HEADER_LOCK, np.load(content) as arrays:
    return dict(arrays)
