"""Tests of the scores of clients that do not attack, by hand."""

import itertools

import numpy as np

from tff_algos.data import schema
from tff_algos.evaluation import honest_clients

_SCORES = (0.5, 0.9, np.nan, 1.0)
_WEIGHTS = dict.fromkeys(
  itertools.product(schema.SPLITS, honest_clients.MODELS),
  np.array([3, 5, 0, 1]),
)


def _columns():
  return {
    f'{split}_{model}_accuracy': np.array(_SCORES) / (1 + (model == 'cluster'))
    for split in schema.SPLITS
    for model in honest_clients.MODELS
  }


def test_honest_clients_have_means_of_their_own():
  """Of 0.5 for three labels, of nothing for none, and of 1 for one."""
  columns = _columns()
  metrics = honest_clients.separate(
    columns,
    _WEIGHTS,
    np.array([False, True, False, False]),
    'accuracy',
    higher_is_better=True,
  )
  assert len(metrics) == 2 * 2 * len(schema.SPLITS)
  assert metrics['attack/honest/test/personalized/accuracy_num_nan'] == 0
  assert metrics['attack/honest/test/personalized/accuracy'] == 2.5 / 4
  assert metrics['attack/honest/train/cluster/accuracy'] == 1.25 / 4
  assert columns['is_attacker'].tolist() == [0, 1, 0, 0]


def test_without_an_attack_nothing_is_said():
  columns = _columns()
  nobody = np.zeros(4, bool)
  assert (
    honest_clients.separate(
      columns, _WEIGHTS, nobody, 'accuracy', higher_is_better=True
    )
    == {}
  )
  assert columns.keys() == _columns().keys()
