"""Evaluation of the honest clients of a run under attack."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_algos.data import schema
from tff_algos.evaluation import summaries

MODELS = ('personalized', 'cluster')


def separate(
  columns: dict[str, Any],
  weights: Mapping[tuple[str, str], np.ndarray],
  is_attacker: np.ndarray,
  score_name: str,
  *,
  higher_is_better: bool,
) -> dict[str, float]:
  """Marks the attackers and returns the mean scores of the honest clients.

  Args:
    columns: Columns of the participating clients in an evaluation; adds
      `is_attacker`.
    weights: (split, model) -> number of scored labels of each client.
    is_attacker: bool `[num_clients]`.
    score_name: Such as `'accuracy'`.
    higher_is_better: Whether a larger score is better.

  Returns:
    `attack/honest/<split>/<model>/<score>`, means over labels, and
    `..._num_nan`, clients left out as not finite; empty without attackers.
  """
  if not is_attacker.any():
    return {}
  columns['is_attacker'] = is_attacker.astype(int)
  found = {}
  for split in schema.SPLITS:
    for model in MODELS:
      name = f'attack/honest/{split}/{model}/{score_name}'
      summary = summaries.summarize(
        columns[f'{split}_{model}_{score_name}'][~is_attacker],
        weights[split, model][~is_attacker],
        higher_is_better=higher_is_better,
      )
      found[name] = summary.weighted_mean
      found[f'{name}_num_nan'] = float(summary.num_nan)
  return found
