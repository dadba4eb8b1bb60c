"""Which distribution shows an example to the client that has it.

Laws that divide classes and natural clients say whose an example is. Then it is
shown once: by its own distribution if it has one, in the one way in which its
client sees all its examples. That is a planted feature shift.
"""

from collections.abc import Mapping

import numpy as np

from pipelines import options
from pipelines.steps import planning
from tff_algos.core import seeds
from tff_algos.core.structures import Array


def draw_views(groups: Mapping[str, int], num_views: int, seed: int) -> Array:
  """Returns the view through which each client sees, int64 `[num_clients]`.

  In each group every view has as many clients, up to one. They are drawn, so
  that the shift does not go along with the clients' classes.

  Args:
    groups: Number of clients in each group, in their order.
    num_views: Ways of showing an example, such as rotations.
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
  """Returns mixtures and owners as `planning.Plan` wants them.

  Args:
    owners: The client of each raw example, `NOBODY` if none, int32 `[n]`.
    survey: All sound examples.
    groups: Number of clients in each group, in their order.
    num_sources: Number of source distributions.
    config: The dataset's config.

  Returns:
    Share of each distribution in what a client has, `[num_clients,
    num_sources]`, None with one distribution; and owners by distribution,
    int32 `[num_sources, n]`. A client that has nothing could have had any of
    its distributions, in equal shares.
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
