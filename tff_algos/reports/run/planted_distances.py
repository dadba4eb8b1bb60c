"""Total variation between memberships and true mixtures, by client."""

from typing import NamedTuple

import numpy as np

from tff_algos.evaluation import distances, recovery
from tff_algos.reports.run import membership_history
from tff_algos.reports.run import run as run_lib


class PlantedDistances(NamedTuple):
  """The clients at one evaluation.

  Attributes:
    round_num: Round of the evaluation.
    values: Total variation of membership and true mixture of the n clients with
      a membership, float64 `[n]`, n >= 1.
    num_unsampled: Number of clients without one.
  """

  round_num: int
  values: np.ndarray
  num_unsampled: int


def at_both_ends(run: run_lib.Run) -> tuple[PlantedDistances, ...]:
  """Returns the distances at the first and the last evaluation with any.

  Clusters are matched to sources at the last evaluation. Membership in an
  unmatched cluster counts in full, since its true share is 0; so does the share
  of a source without a cluster.

  Returns:
    One entry for a single evaluation. Empty without ground truth or saved
    memberships, before the first estimate, or with a single cluster.
  """
  history = run.membership_history
  if history is None or run.num_clusters == 1:
    return ()
  mixture = run.planted_mixture(history.num_clients)
  if mixture is None:
    return ()
  matched = run.matched_sources
  known = matched != recovery.UNMATCHED
  expected = np.zeros((len(mixture), len(matched)))
  expected[:, known] = mixture[:, matched[known]]
  # Shares of sources without a matched cluster.
  missing = np.delete(mixture, matched[known], axis=1).sum(axis=1) / 2
  has_any = history.map(
    lambda one: membership_history.has_membership(one).any()
  )
  (estimated,) = np.nonzero(has_any)
  if not estimated.size:
    return ()
  shown = np.unique(estimated[[0, -1]])
  ends = []
  for round_num, membership in zip(
    history.rounds[shown], history.at(shown), strict=True
  ):
    sampled = membership_history.has_membership(membership)
    values = distances.total_variation(membership, expected) + missing
    ends.append(
      PlantedDistances(int(round_num), values[sampled], int((~sampled).sum()))
    )
  return tuple(ends)
