"""Feature shift: one transformation per client in partitions by class.

Partitions by class and natural partitions assign each example to one client.
The example then appears once: in its native distribution, if any, and with the
transformation that its client applies to all its examples. That is a planted
feature shift.
"""

from collections.abc import Mapping

import numpy as np

from pipelines import options
from pipelines.steps import planning
from tff_algos.core import seeds
from tff_algos.core.structures import Array


def draw_views(groups: Mapping[str, int], num_views: int, seed: int) -> Array:
  """Returns the transformation (view) of each client, int64 `[num_clients]`.

  In each group every view has equally many clients, up to one. Views are drawn
  at random, so that the shift is independent of the clients' classes.

  Args:
    groups: Number of clients in each group, in their order.
    num_views: Number of transformations, such as rotations.
    seed: The dataset's seed.
  """
  return np.concatenate(
    [
      seeds.numpy_generator(seed, f'partition/{group}/views').permutation(
        np.arange(count) % num_views
      )
      for group, count in groups.items()
    ]
  )


def show(
  owners: Array,
  survey: planning.Survey,
  groups: Mapping[str, int],
  num_sources: int,
  config: options.DatasetConfig,
) -> tuple[Array | None, Array]:
  """Returns mixtures and owners, see `planning.Plan`.

  Args:
    owners: Client of each raw example, `NOBODY` if none, int32 `[n]`.
    survey: All valid examples.
    groups: Number of clients in each group, in their order.
    num_sources: Number of source distributions.
    config: The dataset's config.

  Returns:
    Share of each distribution in the examples of a client, `[num_clients,
    num_sources]`, None with one distribution; and owners by distribution,
    int32 `[num_sources, n]`. A client without examples has equal shares of all
    distributions that its view allows.
  """
  if num_sources == 1:
    return None, owners[None]
  num_views = config.distributions.num_views
  view = draw_views(groups, num_views, config.seed)
  native = np.maximum(survey.native_source, 0)
  source = np.where(
    owners == planning.NOBODY, -1, native * num_views + view[owners]
  )
  dealt = owners != planning.NOBODY
  cell = owners[dealt].astype(np.int64) * num_sources + source[dealt]
  counts = np.bincount(cell, minlength=len(view) * num_sources)
  counts = counts.reshape(len(view), num_sources)
  possible = np.arange(num_sources) % num_views == view[:, None]
  has_any = counts.any(axis=1, keepdims=True)
  weights = np.where(has_any, counts, possible)
  by_source = np.where(
    source == np.arange(num_sources)[:, None], owners, planning.NOBODY
  )
  return (
    weights / weights.sum(axis=1, keepdims=True),
    by_source.astype(np.int32),
  )
