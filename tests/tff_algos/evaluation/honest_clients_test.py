"""Tests of the scores of clients that do not attack, by hand."""

import numpy as np

from tff_algos.data import schema
from tff_algos.evaluation import honest_clients

_SCORES, _SIZES = (0.5, 0.9, np.nan, 1.0), (3, 5, 0, 1)


def _rows():
  rows = [
    {
      **{f'num_{split}_examples': size for split in schema.SPLITS},
      **{
        f'{split}_{model}_accuracy': score / (1 + (model == 'cluster'))
        for split in schema.SPLITS
        for model in honest_clients.MODELS
      },
    }
    for score, size in zip(_SCORES, _SIZES, strict=True)
  ]
  return [*rows, {'group': 'unseen'}]


def test_honest_clients_have_means_of_their_own():
  """Of 0.5 in three examples, of nothing in none, and of 1 in one."""
  rows = _rows()
  metrics = honest_clients.separate(
    rows,
    np.array([False, True, False, False]),
    'accuracy',
    higher_is_better=True,
  )
  assert len(metrics) == 2 * len(schema.SPLITS)
  assert metrics['attack/honest/test/personalized/accuracy'] == 2.5 / 4
  assert metrics['attack/honest/train/cluster/accuracy'] == 1.25 / 4
  assert [row.get('is_attacker') for row in rows] == [0, 1, 0, 0, None]


def test_without_an_attack_nothing_is_said():
  rows = _rows()
  nobody = np.zeros(4, bool)
  assert (
    honest_clients.separate(rows, nobody, 'accuracy', higher_is_better=True)
    == {}
  )
  assert rows[0].keys() == _rows()[0].keys()
