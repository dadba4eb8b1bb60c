"""Dead letters of a version, kept also if the build is refused."""

import contextlib
import json
import os
import pathlib
from collections.abc import Generator, Sequence

from pipelines.examples import cleaning
from pipelines.publishing import staging as staging_lib
from tff_algos.core import durable, errors
from tff_algos.data import layout

FILE = 'dead_letters-00000-of-00001.jsonl'


def write(
  staging: staging_lib.Staging, letters: Sequence[cleaning.DeadLetter]
) -> None:
  """Writes the dead letters of the staged version, one JSON object a line."""
  (staging.version / FILE).write_text(
    ''.join(json.dumps(letter._asdict()) + '\n' for letter in letters)
  )


@contextlib.contextmanager
def kept_if_refused(
  staging: staging_lib.Staging, dataset: pathlib.Path, version: str
) -> Generator[None]:
  """Keeps dead letters of a build that its input stops within the block.

  They become `<dataset>/quarantine/<version>.jsonl`.

  Raises:
    UserError: That of the block; the message names the file.
  """
  try:
    yield
  except (errors.ConfigError, errors.DataError, errors.PartitionError) as error:
    staged = staging.version / FILE
    if not staged.exists() or not staged.stat().st_size:
      raise
    kept = dataset / layout.QUARANTINE / f'{version}.jsonl'
    durable.make_folder(kept.parent)
    os.replace(staged, kept)
    raise type(error)(f'{error} The dead letters are in {kept}.') from None
