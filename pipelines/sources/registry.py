"""Registry of sources by the name in a config.

Plug-ins add theirs by `register_source`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pipelines.sources import (
  arrays,
  base,
  cifar,
  csv,
  digits,
  emnist,
  federated_emnist,
  femnist,
  idx,
  images,
  linear_regression,
  logistic_mixture,
  parquet,
  sentiment140,
  shakespeare,
  softmax_groups,
  stack_overflow,
  table_file,
  tfds,
  tiny_imagenet,
  two_gaussians,
)
from tff_algos.core import config as config_lib
from tff_algos.core import errors, plugins


class Entry(NamedTuple):
  """One registered source.

  Attributes:
    config_class: Dataclass of its options.
    build: (options, seed of the dataset) -> Source.
  """

  config_class: type[Any]
  build: Callable[[Any, int], base.Source]


SOURCES: dict[str, Entry] = {
  'arrays': Entry(arrays.Options, arrays.Arrays),
  'cifar': Entry(cifar.Options, cifar.Cifar),
  'csv': Entry(csv.Options, csv.Csv),
  'digits': Entry(digits.Options, digits.Digits),
  'emnist': Entry(emnist.Options, emnist.Emnist),
  'federated_emnist': Entry(
    federated_emnist.Options,
    federated_emnist.FederatedEmnist,
  ),
  'femnist': Entry(femnist.Options, femnist.Femnist),
  'idx': Entry(idx.Options, idx.Idx),
  'images': Entry(images.Options, images.Images),
  'linear_regression': Entry(
    linear_regression.Options,
    linear_regression.LinearRegression,
  ),
  'logistic_mixture': Entry(
    logistic_mixture.Options,
    logistic_mixture.LogisticMixture,
  ),
  'parquet': Entry(parquet.Options, parquet.Parquet),
  'sentiment140': Entry(sentiment140.Options, sentiment140.Sentiment140),
  'shakespeare': Entry(shakespeare.Options, shakespeare.Shakespeare),
  'softmax_groups': Entry(softmax_groups.Options, softmax_groups.SoftmaxGroups),
  'stack_overflow': Entry(stack_overflow.Options, stack_overflow.StackOverflow),
  'table': Entry(table_file.Options, table_file.open_table),
  'tfds': Entry(tfds.Options, tfds.Tfds),
  'tiny_imagenet': Entry(tiny_imagenet.Options, tiny_imagenet.TinyImagenet),
  'two_gaussians': Entry(two_gaussians.Options, two_gaussians.TwoGaussians),
}


def register_source(
  name: str,
  config_class: type[Any],
  build: Callable[[Any, int], base.Source],
) -> None:
  """Registers a source of raw data under a name for configs, as a plug-in does.

  Args:
    name: Name in `config.dataset.source`: lower-case letters, digits and
      underscores.
    config_class: Dataclass of its options.
    build: (options, seed of the dataset) -> Source, most often its class. It is
      sent to workers by pickle, so they must be able to import its module.

  Raises:
    ConfigError: If the name is taken or malformed, or the options are no
      dataclass of fields that configs read.
  """
  plugins.register(SOURCES, 'source', name, Entry(config_class, build))


def parse_options(name: str, options: Mapping[str, Any]) -> Any:
  """Returns the options of a source as its `Options`.

  Args:
    name: Key of `SOURCES`.
    options: Fields of the source's `Options`.

  Raises:
    ConfigError: If the name or an option is unknown, or a value is invalid.
  """
  if name not in SOURCES:
    raise errors.ConfigError(
      f'source.name must be one of {", ".join(map(repr, SOURCES))}, got '
      f'{name!r}. Names of a plug-in need its module in --plugins'
    )
  return config_lib.from_dict(
    SOURCES[name].config_class,
    options,
    'source.options',
    'To change the name by a flag, give its options besides: '
    '--config.dataset.source.options="{...}"',
  )


def create(name: str, options: Mapping[str, Any], seed: int) -> base.Source:
  """Returns a source, without reading data.

  Args:
    name: Key of `SOURCES`.
    options: Fields of the source's `Options`.
    seed: The dataset's seed, for sources that generate their examples.

  Raises:
    ConfigError: If the name or an option is unknown, or a value is invalid.
  """
  parsed = parse_options(name, options)
  return SOURCES[name].build(parsed, seed)
