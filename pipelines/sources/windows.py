"""Windows of consecutive rows of one client, in the order of their times."""

import math
from typing import NamedTuple

import numpy as np

from tff_algos.core.structures import Array


class Windows(NamedTuple):
  """Windows of the rows of a table.

  Attributes:
    order: Rows by client and time, int64 `[num_rows]`; without those that have
      no client or no time.
    first: Position in `order` of the first row of each window, int64
      `[num_windows]`.
    length: Rows of a window.
    lost: Rows without a client or a time, int64 `[num_lost]`.
    num_unused: Rows with both that are in no window.
  """

  order: Array
  first: Array
  length: int
  lost: Array
  num_unused: int

  def __len__(self) -> int:
    """Returns the number of windows."""
    return len(self.first)

  def rows(self, window: int) -> Array:
    """Returns the rows of a window in their order, int64 `[length]`."""
    start = self.first[window]
    return self.order[start : start + self.length]


def find(
  clients: Array, times: Array, length: int, stride: int, max_gap: float | None
) -> Windows:
  """Returns all windows, by client and time.

  Args:
    clients: Client of each row, str or object `[num_rows]`; '' if it is
      missing.
    times: Time of each row, float64 `[num_rows]`; NaN if it is missing. Rows of
      one time keep their order.
    length: Rows of a window, >= 1.
    stride: Rows from the start of a window to that of the next, >= 1.
    max_gap: Greatest difference of the times of two consecutive rows of a
      window; None for any.
  """
  is_placed = (clients != '') & ~np.isnan(times)
  placed = np.flatnonzero(is_placed)
  _, codes = np.unique(clients, return_inverse=True)
  order = placed[np.lexsort((times[placed], codes[placed]))]
  in_order = codes[order]
  is_start = np.ones(len(order), bool)
  is_start[1:] = in_order[1:] != in_order[:-1]
  is_start[1:] |= np.diff(times[order]) > (
    math.inf if max_gap is None else max_gap
  )
  starts = np.flatnonzero(is_start)
  ends = np.append(starts[1:], len(order))
  first = [
    np.arange(start, end - length + 1, stride)
    for start, end in zip(starts, ends, strict=False)
  ]
  joined = np.concatenate([np.empty(0, np.int64), *first])
  # Windows begin and end: their difference, summed up, is the number at a row.
  begun, ended = (
    np.bincount(position, minlength=len(order) + 1)
    for position in (joined, joined + length)
  )
  return Windows(
    order=order,
    first=joined,
    length=length,
    lost=np.flatnonzero(~is_placed),
    num_unused=int(np.sum(np.cumsum(begun - ended)[:-1] == 0)),
  )
