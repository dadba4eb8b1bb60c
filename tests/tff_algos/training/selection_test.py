import math

import pytest

from tff_algos.core import errors
from tff_algos.training import selection

_SCORE = 'participating/validation/personalized/accuracy'


def _progress(values, **options):
  """Returns what rounds 1, 2, ... with these values lead to."""
  config = selection.SelectionConfig(**options)
  progress = selection.Progress()
  metric = options.get('metric', _SCORE)
  for round_num, value in enumerate(values, 1):
    progress = selection.update(
      progress, config, round_num, {metric: value}, _SCORE
    )
  return progress


@pytest.mark.parametrize(
  ('metric', 'mode', 'best_round'),
  [
    ('', 'auto', 2),
    ('a/accuracy', 'auto', 2),
    ('a/loss', 'auto', 3),
    ('a/mse', 'auto', 3),
    ('a/accuracy', 'min', 3),
    ('a/loss', 'max', 2),
  ],
)
def test_the_best_is_the_largest_or_the_smallest(metric, mode, best_round):
  values = [0.5, 0.9, 0.1, 0.9]
  name = {'metric': metric} if metric else {}
  found = _progress(values, mode=mode, **name)
  assert (found.best_round, found.best_value) == (
    best_round,
    values[best_round - 1],
  )
  assert found.num_since == 4 - best_round
  sign = 'smallest' if best_round == 3 else 'largest'
  assert found.rule == f'{sign} {metric or _SCORE}'


def test_a_small_gain_is_no_improvement():
  assert _progress([0.5, 0.55, 0.59], min_improvement=0.1)[:3] == (1, 0.5, 2)
  assert _progress([0.5, 0.55, 0.65], min_improvement=0.1)[:3] == (3, 0.65, 0)


def test_nan_never_is_the_best():
  assert _progress([math.nan, math.nan]).best_round == -1
  assert _progress([math.nan, 0.2, math.nan, 0.1])[:3] == (2, 0.2, 2)


def test_a_mean_that_leaves_out_clients_never_is_the_best():
  config = selection.SelectionConfig()
  progress = selection.Progress()
  for round_num, (value, num_nan) in enumerate([(0.5, 0), (0.9, 1)], 1):
    metrics = {_SCORE: value, f'{_SCORE}_num_nan': num_nan}
    progress = selection.update(progress, config, round_num, metrics, _SCORE)
  assert progress[:3] == (1, 0.5, 1)


@pytest.mark.parametrize(
  ('patience', 'num_since', 'is_over'),
  [(0, 99, False), (3, 2, False), (3, 3, True)],
)
def test_patience(patience, num_since, is_over):
  config = selection.SelectionConfig(patience=patience)
  assert selection.Progress(1, 0.5, num_since).is_over(config) == is_over


def test_a_metric_that_is_not_there_is_refused():
  config = selection.SelectionConfig(metric='a/b')
  with pytest.raises(errors.ConfigError, match=r"'a/b', .* it has c, d"):
    selection.update(selection.Progress(), config, 1, {'c': 1, 'd': 2}, _SCORE)
  # A run without validation examples has no default metric.
  found = selection.update(
    selection.Progress(), selection.SelectionConfig(), 1, {'c': 1}, _SCORE
  )
  assert found.best_round == -1


@pytest.mark.parametrize(
  'options', [{'mode': 'best'}, {'patience': -1}, {'min_improvement': -0.1}]
)
def test_bad_options(options):
  with pytest.raises(errors.ConfigError):
    selection.SelectionConfig(**options)
