import numpy as np

from tests.testing import fake_audit, fake_workdir
from tff_algos.reports.run import committee_history
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import committee_plot


def _heights(axes):
  return [
    sum(bar.get_height() for bar in part.patches) for part in axes.containers
  ]


def test_without_attackers_there_are_two_panels(tmp_path):
  run = fake_workdir.read(tmp_path)
  counts, scores = committee_plot.draw(run).axes
  assert _heights(counts) == [24]
  history = committee_history.read(run)
  assert _heights(scores) == [len(history.distances)]
  never = int((history.num_averaged == 0).sum())
  assert counts.get_title() == f'never averaged: {never} of 24'


def test_attackers_are_told_apart(tmp_path):
  fake_workdir.write(tmp_path)
  ids = [f'client_{index:04d}' for index in range(24)]
  fake_audit.write(tmp_path, ids, attackers=(*ids[:5],), first_round=101)
  path = tmp_path / 'evaluation' / 'clients.csv'
  head, *rows = path.read_text().splitlines()
  lines = [f'{head},is_attacker']
  lines += [f'{row},{int(k < 5)}' for k, row in enumerate(rows)]
  path.write_text('\n'.join(lines) + '\n')
  run = run_lib.read(tmp_path)
  history = committee_history.read(run)
  counts, scores, roles = committee_plot.draw(run).axes
  assert _heights(counts) == [19, 5]
  assert len(scores.containers) == 2
  for index, line in enumerate(roles.lines):
    np.testing.assert_array_equal(line.get_xdata(), range(101, 113))
    np.testing.assert_array_equal(line.get_ydata(), history.attackers[:, index])
  # Neither the axis nor an equal line hides a line at 0.
  assert roles.get_ylim()[0] < 0
  widths = [line.get_linewidth() for line in roles.lines]
  assert widths == sorted(set(widths), reverse=True)
