"""Robust rules and attacks in plain NumPy, from their definitions.

Rows `[n, d]` in float64, all of them real; loops in place of anything clever.
"""

import numpy as np


def squared_distances(rows):
  return ((rows[:, np.newaxis] - rows) ** 2).sum(axis=2)


def trimmed_mean(rows, num_trimmed):
  columns = [sorted(column) for column in rows.T]
  return np.array(
    [
      np.mean(column[num_trimmed : len(column) - num_trimmed])
      for column in columns
    ]
  )


def krum_scores(rows, num_byzantine):
  """Sums of distances to the n - f - 2 nearest other rows, one at least."""
  count = max(len(rows) - num_byzantine - 2, 1)
  return [
    sum(sorted(np.delete(distances, i))[:count])
    for i, distances in enumerate(squared_distances(rows))
  ]


def krum_order(rows, num_byzantine):
  return np.argsort(krum_scores(rows, num_byzantine), kind='stable')


def multi_krum(rows, num_byzantine, num_selected, weights):
  best = krum_order(rows, num_byzantine)[:num_selected]
  return np.average(rows[best], axis=0, weights=weights[best])


def committee(rows, num_members, num_accepted, weights):
  """The middle of the ranking by mean distance judges, and is not averaged."""
  distances = squared_distances(rows)
  ranking = sorted(range(len(rows)), key=lambda i: distances[i].mean())
  first = (len(rows) - num_members) // 2
  members = ranking[first : first + num_members]
  others = [i for i in range(len(rows)) if i not in members]
  others.sort(key=lambda i: np.mean([distances[i, j] for j in members]))
  accepted = others[:num_accepted]
  return np.average(rows[accepted], axis=0, weights=weights[accepted])


def bulyan(rows, num_byzantine):
  left, chosen = list(range(len(rows))), []
  while len(chosen) < len(rows) - 2 * num_byzantine:
    scores = krum_scores(rows[left], num_byzantine)
    chosen.append(left.pop(int(np.argmin(scores))))
  rows = rows[sorted(chosen)]
  num_kept = len(rows) - 2 * num_byzantine
  result = []
  for column in rows.T:
    gaps = np.abs(column - np.median(column))
    result.append(column[np.argsort(gaps, kind='stable')[:num_kept]].mean())
  return np.array(result)


def geometric_median(rows, weights, num_iterations=2000):
  """By Weiszfeld's iteration from the mean, to convergence."""
  point = np.average(rows, axis=0, weights=weights)
  for _ in range(num_iterations):
    pulls = weights / np.linalg.norm(rows - point, axis=1)
    point = np.average(rows, axis=0, weights=pulls)
  return point


def centered_clipping(rows, weights, start, radius, num_iterations):
  point = start
  for _ in range(num_iterations):
    steps = rows - point
    factors = np.minimum(1, radius / np.linalg.norm(steps, axis=1))
    shares = weights / weights.sum()
    point = point + (shares * factors) @ steps
  return point


def mixed_neighbors(rows, num_byzantine):
  distances = squared_distances(rows)
  return np.stack(
    [
      rows[np.argsort(row, kind='stable')[: len(rows) - num_byzantine]].mean(0)
      for row in distances
    ]
  )


def search_step(is_hidden):
  """The largest step that is hidden, by bisection."""
  low, high = 0.0, 1e6
  for _ in range(200):
    middle = (low + high) / 2
    low, high = (middle, high) if is_hidden(middle) else (low, middle)
  return low


def min_max(honest, direction):
  mean = honest.mean(axis=0)
  bound = squared_distances(honest).max()

  def is_hidden(step):
    false = mean + step * direction
    return ((honest - false) ** 2).sum(axis=1).max() <= bound

  return mean + search_step(is_hidden) * direction


def min_sum(honest, direction):
  mean = honest.mean(axis=0)
  bound = squared_distances(honest).sum(axis=1).max()

  def is_hidden(step):
    false = mean + step * direction
    return ((honest - false) ** 2).sum() <= bound

  return mean + search_step(is_hidden) * direction
