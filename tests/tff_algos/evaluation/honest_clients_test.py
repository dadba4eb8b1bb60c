"""Tests of the scores of clients that do not attack, by hand."""

import numpy as np

from tff_algos.data import schema
from tff_algos.evaluation import honest_clients

_SCORES, _SIZES = (0.5, 0.9, np.nan, 1.0), (3, 5, 0, 1)


def _columns():
  return {
    **{f'num_{split}_examples': np.array(_SIZES) for split in schema.SPLITS},
    **{
      f'{split}_{model}_accuracy': np.array(_SCORES)
      / (1 + (model == 'cluster'))
      for split in schema.SPLITS
      for model in honest_clients.MODELS
    },
  }


def test_honest_clients_have_means_of_their_own():
  """Of 0.5 in three examples, of nothing in none, and of 1 in one."""
  columns = _columns()
  metrics = honest_clients.separate(
    columns,
    np.array([False, True, False, False]),
    'accuracy',
    higher_is_better=True,
  )
  assert len(metrics) == 2 * len(schema.SPLITS)
  assert metrics['attack/honest/test/personalized/accuracy'] == 2.5 / 4
  assert metrics['attack/honest/train/cluster/accuracy'] == 1.25 / 4
  assert columns['is_attacker'].tolist() == [0, 1, 0, 0]


def test_without_an_attack_nothing_is_said():
  columns = _columns()
  nobody = np.zeros(4, bool)
  assert (
    honest_clients.separate(columns, nobody, 'accuracy', higher_is_better=True)
    == {}
  )
  assert columns.keys() == _columns().keys()
