"""Look at raw data, and the config file that they suggest."""

import glob
import os
import pathlib
from collections.abc import Mapping

from pipelines.sources import files
from tff_algos.core import errors
from tff_algos.experiments.own_data import columns, config_text
from tff_algos.experiments.own_data import proposal as proposal_lib


def propose_file(
  path: str | os.PathLike[str],
  command: str,
  given: Mapping[str, str | None] | None = None,
) -> str:
  """Returns a config file for raw data.

  Args:
    path: A CSV or Parquet file, or a pattern of several, of which the first is
      looked at; a folder of images, `client/class/file`; or a
      folder of arrays, see `pipelines.sources.arrays`.
    command: Command line to name in the file.
    given: Role (`'client'`, `'label'`, `'time'`) -> column of a table.

  Raises:
    DataError: If there are no such data, or no config suits them.
  """
  given = {role: name for role, name in (given or {}).items() if name}
  if not str(path):
    raise errors.DataError(
      'the path of the raw data is empty; name a file or a folder'
    )
  place = pathlib.Path(path)
  _check_place(place)
  if not place.is_dir():
    # A name may have brackets. A pattern without a file is reported as a file
    # that is missing.
    is_name = place.is_file()
    names = [] if is_name else files.match_names(str(place.parent), place.name)
    table = columns.read(place.with_name(min(names, default=place.name)))
    table = table._replace(is_first=len(names) > 1)
    found = proposal_lib.of_table(str(path), table, given)
  else:
    is_arrays = (place / 'x.npy').exists()
    propose = proposal_lib.of_arrays if is_arrays else proposal_lib.of_images
    found = propose(str(path))
    if given:
      raise errors.ConfigError(
        f'{path} is no table, so it has no columns {given}: leave them out'
      )
  return config_text.render(found, command)


def _check_place(place: pathlib.Path) -> None:
  """Raises DataError if a dataset would not find the files of a path."""
  if glob.has_magic(str(place.parent)) and not place.parent.is_dir():
    raise errors.DataError(
      f'{place} has a pattern among its folders, where only the name of the '
      'files may be one: put the files into one folder'
    )
  inside = [*place.iterdir()] if place.is_dir() else []
  for suffix in ('.parquet', '.csv'):
    has_tables = any(one.suffix == suffix for one in inside)
    has_others = any(one.is_dir() or one.name == 'x.npy' for one in inside)
    if has_tables and not has_others:
      raise errors.DataError(
        f'{place} is a folder of tables; name its files: {place}/*{suffix}'
      )
