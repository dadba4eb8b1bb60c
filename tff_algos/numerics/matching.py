"""Maximum-weight one-to-one matching (assignment problem), in the graph.

Of several best matchings the lexicographically smallest is taken, so that the
result depends neither on the runtime nor on the order of the search.
"""

from typing import NamedTuple

import tensorflow as tf

_NOBODY = -1
# Of the largest score: smaller differences between totals are rounding errors.
_TIE = 1e-12


class _Matching(NamedTuple):
  """Optimal matching of the first rows, with its dual prices.

  Attributes:
    column_of: Column of each row, int32 `[n]`; negative if not matched.
    row_of: Row of each column, int32 `[n]`; negative if not matched.
    row_price: Dual variables of the rows, float64 `[n]`.
    column_price: Dual variables of the columns, float64 `[n]`.
  """

  column_of: tf.Tensor
  row_of: tf.Tensor
  row_price: tf.Tensor
  column_price: tf.Tensor


class _Search(NamedTuple):
  """State of Dijkstra's search for an augmenting path from an unmatched row.

  Attributes:
    row: Row to expand next, int32 `[]`.
    cost: Of the shortest path to that row, float64 `[]`.
    end: The unmatched column that was reached, int32 `[]`.
    costs: Of the shortest known path to each column, float64 `[n]`.
    came_from: Row before each column on that path, int32 `[n]`.
    is_done: Columns whose shortest path is final, bool `[n]`.
  """

  row: tf.Tensor
  cost: tf.Tensor
  end: tf.Tensor
  costs: tf.Tensor
  came_from: tf.Tensor
  is_done: tf.Tensor


def best_matching(scores: tf.Tensor) -> tf.Tensor:
  """Returns the one-to-one matching of rows to columns of largest total score.

  The Hungarian method with shortest augmenting paths (Kuhn 1955; Jonker and
  Volgenant 1987), O(n^3). Of several best permutations the lexicographically
  smallest is returned.

  Args:
    scores: float64 `[n, n]`, finite, n static.

  Returns:
    Column of each row, a permutation, int32 `[n]`.
  """
  size = scores.shape[0]
  nobody = tf.fill([size], _NOBODY)
  no_price = tf.zeros([size], tf.float64)
  start = _Matching(nobody, nobody, no_price, no_price)
  _, matching = tf.while_loop(
    lambda row, _: row < size,
    lambda row, matching: (row + 1, _match_row(-scores, row, matching)),
    (tf.constant(0), start),
    parallel_iterations=1,
  )
  # By complementary slackness a matching is best if all its pairs are tight.
  slack = -scores - matching.row_price[:, tf.newaxis] - matching.column_price
  is_tight = slack <= _TIE * tf.reduce_max(tf.abs(scores))
  return _lexicographically_smallest(is_tight, matching.column_of)


def _lexicographically_smallest(
  is_tight: tf.Tensor, column_of: tf.Tensor
) -> tf.Tensor:
  """Returns the lexicographically smallest matching of tight pairs.

  Row by row, each takes the first column that the rows after it can spare: its
  owner can take the column of another row, and so on, until one takes that of
  the row itself.

  Args:
    is_tight: bool `[n, n]`.
    column_of: Any matching of tight pairs, int32 `[n]`.
  """
  size = is_tight.shape[0]
  rows = tf.range(size)

  def improve(row: tf.Tensor, column_of: tf.Tensor) -> tuple[tf.Tensor, ...]:
    # Whose columns each row can take; the rows before this one are settled.
    can_take = tf.gather(is_tight, column_of, axis=1) & (rows >= row)
    successor = _successors(can_take, row)
    can_spare = tf.equal(rows, row) | (can_take[row] & (successor >= 0))
    owner = tf.argmin(
      tf.where(can_spare, column_of, size), output_type=tf.int32
    )
    successor = _put(successor, row, owner)

    def pass_on(
      giver: tf.Tensor, taken: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
      following = successor[giver]
      return following, _put(taken, giver, column_of[following])

    _, taken = tf.while_loop(
      lambda giver, _: tf.not_equal(giver, row),
      pass_on,
      (owner, _put(column_of, row, column_of[owner])),
      parallel_iterations=1,
    )
    return row + 1, taken

  _, smallest = tf.while_loop(
    lambda row, _: row < size,
    improve,
    (tf.constant(0), column_of),
    parallel_iterations=1,
  )
  return smallest


def _successors(can_take: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
  """Returns the next row on a path from each row to `end`; -1 without a path.

  Args:
    can_take: Edges between rows, bool `[n, n]`.
    end: int32 `[]`; its own successor is itself.
  """
  size = can_take.shape[0]
  nobody = tf.fill([size], _NOBODY)

  def grow(_: tf.Tensor, successor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    edges = can_take & (successor >= 0)
    is_new = tf.reduce_any(edges, axis=1) & (successor < 0)
    following = tf.argmax(edges, axis=1, output_type=tf.int32)
    return tf.reduce_any(is_new), tf.where(is_new, following, successor)

  _, successor = tf.while_loop(
    lambda grows, _: grows,
    grow,
    (tf.constant(True), _put(nobody, end, end)),
    parallel_iterations=1,
  )
  return successor


def _match_row(
  costs: tf.Tensor, row: tf.Tensor, matching: _Matching
) -> _Matching:
  """Returns the optimal matching after adding a row."""
  found = _search(costs, row, matching)
  # How much cheaper each done column is reached than the end of the path.
  saved = tf.where(
    found.is_done, found.cost - found.costs, tf.zeros_like(found.costs)
  )
  was_matched = matching.column_of >= 0
  of_row = tf.gather(saved, tf.maximum(matching.column_of, 0))
  row_price = matching.row_price + tf.where(
    was_matched, of_row, tf.zeros_like(of_row)
  )
  row_price = _put(row_price, row, row_price[row] + found.cost)

  def turn(
    column: tf.Tensor, column_of: tf.Tensor, row_of: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Matches a column with the row before it, freeing that row's column."""
    before = found.came_from[column]
    row_of = _put(row_of, column, before)
    return column_of[before], _put(column_of, before, column), row_of

  _, column_of, row_of = tf.while_loop(
    lambda column, *_: column >= 0,
    turn,
    (found.end, matching.column_of, matching.row_of),
    parallel_iterations=1,
  )
  return _Matching(column_of, row_of, row_price, matching.column_price - saved)


def _search(costs: tf.Tensor, row: tf.Tensor, matching: _Matching) -> _Search:
  """Returns the shortest paths from a row to the nearest free column."""
  size = costs.shape[0]
  infinite = tf.fill([size], tf.constant(float('inf'), tf.float64))

  def step(search: _Search) -> tuple[_Search]:
    reduced = costs[search.row] - matching.row_price[search.row]
    through = search.cost + reduced - matching.column_price
    is_shorter = tf.logical_not(search.is_done) & (through < search.costs)
    found = tf.where(is_shorter, through, search.costs)
    came_from = tf.where(is_shorter, search.row, search.came_from)
    column = tf.argmin(
      tf.where(search.is_done, infinite, found), output_type=tf.int32
    )
    owner = matching.row_of[column]
    return (
      _Search(
        tf.maximum(owner, 0),
        found[column],
        tf.where(owner < 0, column, _NOBODY),
        found,
        came_from,
        search.is_done | tf.equal(tf.range(size), column),
      ),
    )

  start = _Search(
    row,
    tf.constant(0.0, tf.float64),
    tf.constant(_NOBODY),
    infinite,
    tf.fill([size], _NOBODY),
    tf.fill([size], False),
  )
  (found,) = tf.while_loop(
    lambda search: search.end < 0,
    step,
    (start,),
    parallel_iterations=1,
  )
  return found


def _put(vector: tf.Tensor, index: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
  """Returns the vector with another value at an index."""
  return tf.where(tf.equal(tf.range(vector.shape[0]), index), value, vector)
