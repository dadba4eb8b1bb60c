"""All sources by the name that a config gives."""

from collections.abc import Mapping
from typing import Any

from pipelines.sources import base, csv, digits, idx, linear_regression, tfds
from tff_algos.core import checks
from tff_algos.core import config as config_lib

# name -> (options, class)
SOURCES = {
  'csv': (csv.Options, csv.Csv),
  'digits': (digits.Options, digits.Digits),
  'idx': (idx.Options, idx.Idx),
  'linear_regression': (
    linear_regression.Options,
    linear_regression.LinearRegression,
  ),
  'tfds': (tfds.Options, tfds.Tfds),
}


def create(name: str, options: Mapping[str, Any], seed: int) -> base.Source:
  """Returns a source; nothing is read yet.

  Args:
    name: Key of `SOURCES`.
    options: Fields of the source's `Options`.
    seed: The dataset's seed, for sources that generate their examples.

  Raises:
    ConfigError: If the name, an option's name or its value is not known.
  """
  checks.check_one_of('source.name', name, tuple(SOURCES))
  options_class, source_class = SOURCES[name]
  return source_class(
    config_lib.from_dict(options_class, options, 'source.options'), seed
  )
