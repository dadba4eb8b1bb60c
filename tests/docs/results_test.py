"""Stored results: verdicts by their rule, tables, what a page shows of them."""

import json
import math

import numpy as np
import pytest

from docs.reproduction import results
from tff_algos.core import errors

_METRIC = 'test/accuracy'


@pytest.mark.parametrize(
  ('differences', 'verdict'),
  [
    ([0.9, 1.1, 1.0], results.CONFIRMED),
    ([-0.9, -1.1, -1.0], results.CONTRADICTED),
    # The interval of the first three has 0 in it.
    ([0.1, 3.0, 1.0], results.UNTESTED),
    ([0.1, 3.0, 1.0, 1.2, 0.9, 1.1], results.CONFIRMED),
    # Two seeds show nothing, however far apart.
    ([50.0, 50.1], results.UNTESTED),
    ([], results.UNTESTED),
    ([0.0, 0.0, 0.0], results.UNTESTED),
    ([2.0, 2.0, 2.0], results.CONFIRMED),
  ],
)
def test_verdict_follows_from_the_interval_of_paired_differences(
  differences, verdict
):
  """Whatever the seeds' own levels, which are far apart here."""
  worse = {seed: 100.0 * seed for seed in range(len(differences))}
  better = {seed: worse[seed] + d for seed, d in enumerate(differences)}
  found = results.judge(better, worse)
  assert found.verdict == verdict
  assert found.num_seeds == len(differences)


def test_interval_is_that_of_a_paired_t_test():
  """Quantile 0.975 of Student's t with four degrees of freedom: 2.776."""
  values = np.random.default_rng(0).normal(size=(2, 5))
  differences = values[0] - values[1]
  found = results.judge(*(dict(enumerate(one.tolist())) for one in values))
  margin = 2.7764451 * differences.std(ddof=1) / 5**0.5
  assert found.difference == pytest.approx(differences.mean())
  assert found.high - found.difference == pytest.approx(margin)
  assert found.difference - found.low == pytest.approx(margin)


def test_only_seeds_of_both_are_compared():
  found = results.judge({0: 1.0, 1: 2.0, 2: 3.0, 7: 9.0}, {0: 0.0, 1: 0.0})
  assert found.num_seeds == 2
  assert found.difference == 1.5
  assert math.isnan(found.low)


def _cell(*scores):
  runs = [
    {'seed': seed, 'seconds': 1800.0, 'metrics': {_METRIC: [0.1, score]}}
    for seed, score in enumerate(scores)
  ]
  provenance = {
    **{'revision': 'abcdef0123456789', 'is_clean': True, 'lock_hash': '77'},
    'machine': {'cpu': 'Fast', 'num_cores': 2, 'memory_gib': 8.0},
  }
  return {
    **{'config_hash': 'x', 'config': {}, 'provenance': [provenance]},
    **{'rounds': [0, 9], 'runs': runs},
  }


_EXPERIMENT = """
[[experiment]]
id = "lab/one"
reproduces = "Lab, Table 1"
sweep = "--config=a.py --num_seeds=3"
metric = "test/accuracy"
rows = [
  { cell = "new", title = "New", paper = "90.1" },
  { cell = "old", title = "Old" },
  { cell = "rare", title = "Rare" },
  { cell = "unfinished", title = "Unfinished" },
]
claims = [
  { text = "new is better", better = "new", worse = "old" },
  { text = "rare is better", better = "rare", worse = "old", of_paper = false },
]
"""
_PAGE = 'Before.\n<!-- result lab/one -->\nold\n<!-- end -->\nAfter.\n'


@pytest.fixture(name='lab')
def _lab(tmp_path, monkeypatch):
  """An experiment; returns the function that stores a result of it."""
  (tmp_path / 'experiments.toml').write_text(_EXPERIMENT)
  monkeypatch.setattr(results, '_EXPERIMENTS', tmp_path / 'experiments.toml')
  monkeypatch.setattr(results, '_STORED', tmp_path / 'results')

  def store(**cells):
    content = {'command': 'c', 'cells': cells}
    results.write(results.find('lab/one'), content)

  return store


def test_configs_come_back_and_what_they_share_is_stored_once(lab):
  small = {'law': 'equal', 'sizes': {'least': None, 'options': {}}, 'seed': 0}
  large = {'law': 'equal', 'sizes': {'options': {}, 'most': 1.0}, 'seed': 0.0}
  other = {'law': {'name': 'equal'}, 'sizes': 3, 'seed': None}
  for configs in ([small, large], [small, large, other], [other]):
    cells = {str(one): {'config': one} for one in configs}
    lab(**cells)
    stored = results.read(results.find('lab/one'))
    # As JSON, where 0, 0.0 and null differ.
    assert json.dumps(stored['cells'], sort_keys=True) == json.dumps(
      cells, sort_keys=True
    )
  lab(small={'config': small}, large={'config': large})
  file = json.loads(results.find('lab/one').record.read_text())
  assert file['config'] == {'law': 'equal', 'sizes': {'options': {}}}
  assert file['cells']['large']['config'] == {'sizes': {'most': 1.0}, 'seed': 0}


def test_page_has_what_is_stored_and_no_deviation_of_two_seeds(lab):
  lab(new=_cell(0.9, 0.92, 0.91), old=_cell(0.8, 0.82, 0.81), rare=_cell(1, 1))
  page = results.render(_PAGE, {})
  assert page.startswith('Before.\n<!-- result lab/one -->\n```\npython -m ')
  assert page.endswith('<!-- end -->\nAfter.\n')
  assert (
    'binaries.sweep --config=a.py --num_seeds=3 '
    '--workdir=runs/reproduction/lab/one\n'
  ) in page
  assert '| New | 90.1 | 91.0 ± 1.0 | 3 |' in page
  assert '| Rare |  | 100.0, 100.0 | 2 |' in page
  assert 'Unfinished' not in page
  assert (
    '| new is better | +10.00 (+10.00 to +10.00), 3 seeds: **confirmed** |'
  ) in page
  assert (
    "| (not the paper's) rare is better | +19.0, 2 seeds: **untested at this"
  ) in page
  assert (
    'Commit `abcdef0123`, lock `77`, Fast, 2 cores, 8 GiB; 8 runs, 4.0 h of rounds.'
  ) in page
  assert results.render(page, {}) == page
  assert results.ids(page) == ['lab/one']


_TWO_METRICS = """
[[experiment]]
id = "lab/one"
reproduces = "Lab, Table 1"
sweep = "--config=a.py --num_seeds=3"
metric = "test/accuracy"
rows = [
  { cell = "new", title = "New" },
  { cell = "new", title = "New, its loss", metric = "test/loss" },
]
claims = [
  { text = "new is better", better = "new", worse = "old" },
  { text = "new fits better", better = "new", worse = "old", metric = "test/loss" },
]
"""


def test_a_row_and_a_claim_may_have_a_metric_of_their_own(lab, tmp_path):
  (tmp_path / 'experiments.toml').write_text(_TWO_METRICS)
  cells = {'new': _cell(0.9, 0.9, 0.9), 'old': _cell(0.8, 0.8, 0.8)}
  for cell, losses in (('new', [3.0, 3.1, 3.2]), ('old', [2.5, 2.4, 2.5])):
    for run, loss in zip(cells[cell]['runs'], losses, strict=True):
      run['metrics']['test/loss'] = [9.0, loss]
  lab(**cells)
  assert results.find('lab/one').metrics == ['test/accuracy', 'test/loss']
  page = results.render(_PAGE, {})
  assert '| New |  | 90.0 ± 0.0 | 3 |\n| New, its loss |  | 3.1 ± 0.1 |' in page
  assert '| +10.00 (+10.00 to +10.00), 3 seeds: **confirmed** |' in page
  # 0.5, 0.7 and 0.7 more loss: a mean of 0.633, a deviation of 0.115.
  assert (
    '| new fits better | −0.63 (−0.92 to −0.35), 3 seeds: **contradicted** |'
  ) in page


def test_a_metric_that_a_result_lacks_is_named(lab, tmp_path):
  (tmp_path / 'experiments.toml').write_text(_TWO_METRICS)
  lab(new=_cell(0.9), old=_cell(0.8))
  with pytest.raises(
    errors.DataError,
    match=r"lab/one has no 'test/loss' of cell 'new'.*RUN=lab/one",
  ):
    results.render(_PAGE, {})


_GRID = """
[[experiment]]
id = "lab/one"
reproduces = "Lab, Figure 1"
sweep = "--config=a.py --grid=rate=1,2 --grid=size=3,4 --num_seeds=3"
metric = "test/accuracy"
grids = [
  { title = "rate, size", cell = "rate={down}, size={across}", down = ["1", "2"], across = ["3", "4"] },
]
claims = [
  { text = "slow is better", across = ["3", "4"], better = "rate=1, size={across}", worse = "rate=2, size={across}" },
  { text = "size matters", better = "rate=1, size=4", worse = "rate=1, size=3" },
]
"""


def test_two_axes_are_a_table_of_cells(lab, tmp_path):
  (tmp_path / 'experiments.toml').write_text(_GRID)
  lab(
    **{
      'rate=1, size=3': _cell(0.1, 0.2, 0.3),
      'rate=1, size=4': _cell(0.5, 0.5, 0.5),
      'rate=2, size=3': _cell(0.0, 0.1, 0.2),
      'rate=2, size=4': _cell(0.75, 0.25),
    }
  )
  page = results.render(_PAGE, {'lab/one': ['rate=1, size=4']})
  assert (
    '| rate, size | 3 | 4 |\n|---|---|---|\n'
    '| 1 | 20.0 ± 10.0 | 50.0 ± 0.0 *stale* |\n'
    '| 2 | 10.0 ± 10.0 | 75.0, 25.0 |\n'
  ) in page
  assert (
    '| claim | 3 | 4 |\n|---|---|---|\n'
    '| slow is better | +10.00 (+10.00 to +10.00), 3 seeds: **confirmed** | '
    '+0.0, 2 seeds: **untested at this size** *stale* |\n\n'
    '| claim | ours, difference, and verdict |\n|---|---|\n'
    '| size matters | +30.0 (+5.2 to +54.8), 3 seeds: **confirmed** *stale* |\n'
  ) in page
  summary = results.render('<!-- claims -->\n<!-- end -->', {})
  assert '[Lab, Figure 1](lab.md) | 2 |  | 1 |' in summary
  assert '| paper |' not in page


_CHOSEN = """
[[experiment]]
id = "lab/one"
reproduces = "Lab, Table 1"
sweep = "--config=a.py --grid=rate=1,2 --config=b.py --num_seeds=3"
metric = "test/accuracy"
choose_by = "validation/accuracy"
rows = [
  { cell = "new, rate=*", title = "New" },
  { cell = "old*", title = "Old" },
]
claims = [{ text = "new is better", better = "new, rate=*", worse = "old*" }]
"""


def test_the_best_cell_by_validation_is_shown_and_compared(lab, tmp_path):
  """Not the best by test accuracy; and it alone is marked stale."""
  (tmp_path / 'experiments.toml').write_text(_CHOSEN)
  one = results.find('lab/one')
  assert one.command == (
    'python -m binaries.sweep --config=a.py --grid=rate=1,2 '
    '--workdir=runs/reproduction/lab/one/0\n'
    'python -m binaries.sweep --config=b.py --num_seeds=3 '
    '--workdir=runs/reproduction/lab/one/1'
  )
  cells = {
    'new, rate=1': _cell(0.6, 0.6, 0.6),
    'new, rate=2': _cell(0.9, 0.9, 0.9),
    'old': _cell(0.5, 0.5, 0.5),
    'old too': _cell(0.4, 0.4, 0.4, 0.9),
  }
  # Of a seed that not all have nothing is chosen by.
  validation = [0.7, 0.5, 0.7], [0.8, 0.4, 0.6], [0.2] * 3, [0.1] * 3 + [1.0]
  for cell, scores in zip(cells.values(), validation, strict=True):
    for run, score in zip(cell['runs'], scores, strict=True):
      run['metrics']['validation/accuracy'] = [0.9, score]
  lab(**cells)
  page = results.render(_PAGE, {'lab/one': ['new, rate=2']})
  assert '| New (new, rate=1) |  | 60.0 ± 0.0 | 3 |' in page
  assert '| Old (old) |' in page
  assert '| +10.00 (+10.00 to +10.00), 3 seeds: **confirmed** |' in page
  page = results.render(_PAGE, {'lab/one': ['new, rate=1']})
  assert '| New (new, rate=1) *stale* |' in page
  assert '**confirmed** *stale* |' in page
  del cells['old too']
  lab(**cells)
  page = results.render(_PAGE, {})
  assert '**confirmed**, chosen of 2 and of 1 cells |' in page
  summary = '<!-- claims -->\n<!-- end -->\n'
  assert '| 1 |  |  |' in results.render(summary, {})
  stale = results.render(summary, {'lab/one': ['new, rate=1']})
  assert '| 1 *stale* |  |  |' in stale


@pytest.mark.parametrize(
  ('metric', 'shown', 'difference'),
  [
    ('test/loss', '0.600 ± 0.000', '+0.30 (+0.30 to +0.30)'),
    ('test/mse', '0.600 ± 0.000', '+0.30 (+0.30 to +0.30)'),
    # A share, in %.
    ('membership/error', '60.0 ± 0.0', '+30.00 (+30.00 to +30.00)'),
  ],
)
def test_of_errors_the_lower_is_better(
  lab, tmp_path, metric, shown, difference
):
  """In verdicts, and where a cell is chosen."""
  text = _CHOSEN.replace('test/accuracy', metric)
  text = text.replace('validation/accuracy', 'validation/loss')
  (tmp_path / 'experiments.toml').write_text(text)
  cells = {
    'new, rate=1': _cell(0.6, 0.6, 0.6),
    'new, rate=2': _cell(0.5, 0.5, 0.5),
    'old': _cell(0.9, 0.9, 0.9),
    'old too': _cell(0.8, 0.8, 0.8),
  }
  for cell, error in zip(cells.values(), (0.1, 0.2, 0.3, 0.4), strict=True):
    for run in cell['runs']:
      run['metrics'][metric] = run['metrics'].pop(_METRIC)
      run['metrics']['validation/loss'] = [0.0, error]
  lab(**cells)
  page = results.render(_PAGE, {})
  assert f'| New (new, rate=1) |  | {shown} | 3 |' in page
  assert f'| {difference}, 3 seeds: **confirmed** |' in page


def test_an_end_that_decides_is_not_rounded_to_0(lab):
  """Mean -0.8, deviation 0.316: the margin is 4.303 * 0.316 / 3**0.5 = 0.785."""
  lab(new=_cell(0.68884, 0.692, 0.69516), old=_cell(0.7, 0.7, 0.7))
  assert (
    '| −0.80 (−1.58 to −0.02), 3 seeds: **contradicted** |'
  ) in results.render(_PAGE, {})


def test_nor_is_one_that_leaves_it_open(lab):
  """Mean 0.145, deviation 0.119: the margin is 2.776 * 0.119 / 5**0.5 = 0.147."""
  old = [0.986323, 0.984827, 0.984257, 0.985824, 0.985254]
  new = [0.98675, 0.985824, 0.987463, 0.986323, 0.987391]
  lab(new=_cell(*new), old=_cell(*old))
  assert (
    '| +0.145 (−0.003 to +0.294), 5 seeds: **untested at this size** |'
  ) in results.render(_PAGE, {})


def test_stale_cells_are_marked_in_table_and_verdict(lab):
  lab(new=_cell(0.9, 0.92, 0.91), old=_cell(0.8, 0.82, 0.81))
  page = results.render(_PAGE, {'lab/one': ['old']})
  assert '| Old *stale* |' in page
  assert '| New |' in page
  assert '**confirmed** *stale* |' in page


def test_summary_counts_verdicts_also_of_what_was_not_run(lab):
  """Those on the paper's claims: not that of `rare`."""
  page = '<!-- claims -->\n<!-- end -->'
  row = '\n| [Lab, Table 1](lab.md) | '
  assert f'{row} |  | not run | `RUN=lab/one` |  |\n' in results.render(
    page, {}
  )
  assert 'Not run: no result is stored.' in results.render(_PAGE, {})
  lab(new=_cell(0.7, 0.6, 0.5), old=_cell(0.8, 0.7, 0.6))
  assert (
    f'{row} | 1 |  | `RUN=lab/one` | 6 runs, 3.0 h of rounds |\n'
  ) in results.render(page, {})


def test_costs_are_those_of_the_fastest_runs(lab):
  """What slows down a run that shares its machine is no cost."""
  new, old = _cell(0.9, 0.8, 0.7), _cell(0.6)
  for run, seconds in zip(new['runs'], (700.0, 600.0, 6000.0), strict=True):
    run['seconds'] = seconds
  lab(new=new, old=old)
  assert '; 4 runs, 1.0 h of rounds.' in results.render(_PAGE, {})
  del new['runs'][2]
  lab(new=new, old=old)
  assert '; 3 runs, 50 min of rounds.' in results.render(_PAGE, {})


def test_a_changed_file_and_an_unknown_id_are_refused(lab):
  lab(new=_cell(0.9))
  path = results.find('lab/one').record
  content = json.loads(path.read_text())
  content['cells']['new']['runs'][0]['metrics'][_METRIC] = [0.1, 0.99]
  path.write_text(json.dumps(content))
  with pytest.raises(errors.DataError, match='make reproduction RUN=lab/one'):
    results.render(_PAGE, {})
  with pytest.raises(errors.ConfigError, match='RUN=x is no exp.* has lab/one'):
    results.find('x')
