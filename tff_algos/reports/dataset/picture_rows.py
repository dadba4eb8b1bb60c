"""Order of clients and their grouping into the rows of a picture."""

from typing import NamedTuple

import numpy as np

from tff_algos.reports.dataset import facts as facts_lib

# With more clients than this, a row of a picture is the mean of several.
MAX_ROWS = 60


class Rows(NamedTuple):
  """The rows of a picture.

  Attributes:
    members: Positions of each row's clients.
    title: Description of a row.
  """

  members: tuple[np.ndarray, ...]
  title: str

  def mean(self, shares: np.ndarray) -> np.ndarray:
    """Returns the mean of the rows' clients, `[N, ...]` to `[num_rows, ...]`.

    Clients without a share (NaN) are ignored.
    """
    return np.stack(
      [np.nanmean(shares[clients], axis=0) for clients in self.members]
    )


def similar_side_by_side(facts: facts_lib.Facts) -> np.ndarray:
  """Returns the clients with training examples, similar ones adjacent.

  They are sorted by planted cluster, then by main source distribution and its
  share, then by commonest label and its share.
  """
  shares = shares_of(facts.sources)
  if facts.mixture is not None:
    shares = facts.mixture
  labels = shares_of(facts.labels)
  keys = []
  if facts.clusters is not None:
    keys.append(facts.clusters)
  for table in (shares, labels):
    if table.shape[1] > 1:
      table = np.nan_to_num(table)
      main = np.argmax(table, axis=1)
      # Ascending and descending in turn, so that adjacent groups are similar.
      sign = np.where(main % 2, 1, -1)
      keys += [main, sign * np.max(table, axis=1)]
  keys.append(np.arange(len(shares)))
  order = np.lexsort(keys[::-1])
  return order[facts.sources.sum(axis=1)[order] > 0]


def cut(clients: np.ndarray) -> Rows:
  """Returns at most `MAX_ROWS` rows for clients in their order."""
  if len(clients) <= MAX_ROWS:
    return Rows(tuple(clients[:, None]), f'{len(clients)} clients')
  rows = tuple(np.array_split(clients, MAX_ROWS))
  sizes = sorted({len(row) for row in rows})
  each = ' or '.join(f'{size:,}' for size in sizes)
  return Rows(rows, f'{len(clients):,} clients, rows are means of {each}')


def shares_of(counts: np.ndarray) -> np.ndarray:
  """Returns counts `[N, K]` as shares; NaN where there are none."""
  totals = counts.sum(axis=1, keepdims=True).astype(np.float64)
  totals[totals == 0] = np.nan
  return counts / totals
