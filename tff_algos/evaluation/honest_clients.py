"""Evaluation of the honest clients of a run under attack."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_algos.data import schema
from tff_algos.evaluation import summaries

MODELS = ('personalized', 'cluster')


def separate(
  clients: Sequence[dict[str, Any]],
  is_attacker: np.ndarray,
  score_name: str,
  *,
  higher_is_better: bool,
) -> dict[str, float]:
  """Marks the attackers and returns the mean scores of the honest clients.

  Args:
    clients: Rows of an evaluation, participating clients first; adds
      `is_attacker` to the latter's rows.
    is_attacker: bool `[num_clients]`.
    score_name: Such as `'accuracy'`.
    higher_is_better: Whether a larger score is better.

  Returns:
    `attack/honest/<split>/<model>/<score>`, means over examples; empty without
    attackers.
  """
  if not is_attacker.any():
    return {}
  participating = clients[: len(is_attacker)]
  for row, attacks in zip(participating, is_attacker, strict=True):
    row['is_attacker'] = int(attacks)
  honest = [row for row in participating if not row['is_attacker']]
  return {
    f'attack/honest/{split}/{model}/{score_name}': summaries.summarize(
      np.array([row[f'{split}_{model}_{score_name}'] for row in honest]),
      np.array([row[f'num_{split}_examples'] for row in honest]),
      higher_is_better=higher_is_better,
    ).weighted_mean
    for split in schema.SPLITS
    for model in MODELS
  }
