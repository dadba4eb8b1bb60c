"""Source of tables in CSV or Parquet files, by their suffix."""

import dataclasses
import pathlib

from pipelines.sources import csv, parquet, table

_PARQUET = '.parquet'


@dataclasses.dataclass(frozen=True)
class Options(csv.Options):
  """Options of tables: of Parquet files `.parquet`, else of CSV files."""


def open_table(options: Options, seed: int) -> table.Table:
  """Returns the source that reads the files."""
  if pathlib.PurePath(options.path).suffix == _PARQUET:
    return parquet.Parquet(options, seed)
  return csv.Csv(options, seed)
