"""Source of tables in CSV or Parquet files, by their suffix."""

import dataclasses
import pathlib

from pipelines.sources import csv, parquet, table
from tff_algos.core import errors

_PARQUET = '.parquet'


@dataclasses.dataclass(frozen=True)
class Options(csv.Options):
  """Options of tables: of Parquet files `.parquet`, else of CSV files."""

  def __post_init__(self) -> None:
    super().__post_init__()
    for name in ('delimiter', 'column_names'):
      if _is_parquet(self) and getattr(self, name) != getattr(
        csv.Options, name
      ):
        raise errors.ConfigError(
          f'{name} is of CSV files, and {self.path} is a Parquet file; leave '
          'it out'
        )


def _is_parquet(options: Options) -> bool:
  return pathlib.PurePath(options.path).suffix == _PARQUET


def open_table(options: Options, seed: int) -> table.Table:
  """Returns the source that reads the files."""
  if _is_parquet(options):
    return parquet.Parquet(options, seed)
  return csv.Csv(options, seed)
