"""Whether a sweep can answer what is asked of it."""

import pytest

from binaries import comparison
from configs.fed_soft import synthetic
from tff_algos.core import errors
from tff_algos.experiments.sweeps import grid
from tff_algos.reports.sweep import choice

_KEY = 'algorithm.num_clusters'


def _runs(validation_ratio=0.0, num_unseen_clients=0):
  base = synthetic.get_config('smoke').to_dict()
  base['dataset']['splits']['validation_ratio'] = validation_ratio
  base['dataset']['partition']['num_unseen_clients'] = num_unseen_clients
  return grid.expand({'smoke': base}, [f'{_KEY}=2,3'], 1)


def test_what_can_be_answered_passes():
  comparison.check(_runs(), None)
  comparison.check(_runs(validation_ratio=0.2), choice.Question(_KEY))
  comparison.check(
    _runs(num_unseen_clients=2), choice.Question(_KEY, choice.UNSEEN)
  )


@pytest.mark.parametrize(
  ('options', 'question', 'text'),
  [
    (
      {'num_unseen_clients': 2},
      choice.Question(_KEY),
      '--choose_by=validation needs datasets with a validation part .*; that '
      'of num_clusters=2/seed_0 has none',
    ),
    (
      {'validation_ratio': 0.2},
      choice.Question(_KEY, choice.UNSEEN),
      '--choose_by=unseen needs datasets with unseen clients',
    ),
    (
      {'validation_ratio': 0.2},
      choice.Question('num_clusters'),
      f'--choose=num_clusters must be what the runs differ by, which is {_KEY}',
    ),
  ],
)
def test_what_cannot_be_answered_is_refused(options, question, text):
  with pytest.raises(errors.UserError, match=text):
    comparison.check(_runs(**options), question)


def test_every_dataset_of_a_sweep_is_looked_at():
  base = synthetic.get_config('smoke').to_dict()
  axes = [f'{_KEY}=2,3', 'dataset.splits.validation_ratio=0.2,0.0']
  runs = grid.expand({'smoke': base}, axes, 1)
  with pytest.raises(
    errors.ConfigError, match='num_clusters=2,validation_ratio=0/seed_0 has'
  ):
    comparison.check(runs, choice.Question(_KEY))
