"""Registry of sources by the name in a config."""

from collections.abc import Callable, Mapping
from typing import Any

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
  quadratics,
  sentiment140,
  shakespeare,
  softmax_groups,
  stack_overflow,
  table_file,
  tfds,
  tiny_imagenet,
  two_gaussians,
)
from tff_algos.core import checks
from tff_algos.core import config as config_lib

# name -> (options, class)
SOURCES: Mapping[str, tuple[type[Any], Callable[[Any, int], base.Source]]] = {
  'arrays': (arrays.Options, arrays.Arrays),
  'cifar': (cifar.Options, cifar.Cifar),
  'csv': (csv.Options, csv.Csv),
  'digits': (digits.Options, digits.Digits),
  'emnist': (emnist.Options, emnist.Emnist),
  'federated_emnist': (
    federated_emnist.Options,
    federated_emnist.FederatedEmnist,
  ),
  'femnist': (femnist.Options, femnist.Femnist),
  'idx': (idx.Options, idx.Idx),
  'images': (images.Options, images.Images),
  'linear_regression': (
    linear_regression.Options,
    linear_regression.LinearRegression,
  ),
  'logistic_mixture': (
    logistic_mixture.Options,
    logistic_mixture.LogisticMixture,
  ),
  'parquet': (parquet.Options, parquet.Parquet),
  'quadratics': (quadratics.Options, quadratics.Quadratics),
  'sentiment140': (sentiment140.Options, sentiment140.Sentiment140),
  'shakespeare': (shakespeare.Options, shakespeare.Shakespeare),
  'softmax_groups': (softmax_groups.Options, softmax_groups.SoftmaxGroups),
  'stack_overflow': (stack_overflow.Options, stack_overflow.StackOverflow),
  'table': (table_file.Options, table_file.open_table),
  'tfds': (tfds.Options, tfds.Tfds),
  'tiny_imagenet': (tiny_imagenet.Options, tiny_imagenet.TinyImagenet),
  'two_gaussians': (two_gaussians.Options, two_gaussians.TwoGaussians),
}


def create(name: str, options: Mapping[str, Any], seed: int) -> base.Source:
  """Returns a source, without reading data.

  Args:
    name: Key of `SOURCES`.
    options: Fields of the source's `Options`.
    seed: The dataset's seed, for sources that generate their examples.

  Raises:
    ConfigError: If the name or an option is unknown, or a value is invalid.
  """
  checks.check_one_of('source.name', name, tuple(SOURCES))
  options_class, source_class = SOURCES[name]
  return source_class(
    config_lib.from_dict(
      options_class,
      options,
      'source.options',
      'To change the name by a flag, give its options besides: '
      '--config.dataset.source.options="{...}"',
    ),
    seed,
  )
