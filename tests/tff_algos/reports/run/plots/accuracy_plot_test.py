"""The picture of scores over rounds."""

import pytest

from tests.testing import fake_workdir
from tff_algos.core import sealed_json
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib
from tff_algos.reports.run.plots import accuracy_plot


def _texts(axes):
  return [text.get_text() for text in axes.texts]


def test_a_panel_for_each_source_and_one_for_the_clients(tmp_path):
  with style.applied():
    figure = accuracy_plot.draw(fake_workdir.read(tmp_path))
  titles = [axes.get_title('left') for axes in figure.axes]
  assert titles == [
    'on held-out upright',
    'on held-out rotated_90',
    "on the clients' own test examples",
  ]
  labels = ' '.join(_texts(figure.axes[0]))
  for name in ('cluster 0: ', 'cluster 1: '):
    assert name in labels


def test_a_continued_run_starts_at_the_last_round_of_its_parent(tmp_path):
  fake_workdir.write(tmp_path)
  fake_workdir.keep_rounds_from(tmp_path, 20)
  figure = accuracy_plot.draw(run_lib.read(tmp_path))
  for axes in figure.axes:
    assert axes.get_xlim() == (20, 30)
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_each_panel_has_the_majority_class_of_its_own_data(tmp_path):
  figure = accuracy_plot.draw(fake_workdir.read(tmp_path))
  for axes, share in zip(figure.axes, (0.11, 0.12, 0.1462), strict=True):
    (dotted,) = [line for line in axes.lines if line.get_linestyle() == ':']
    assert set(dotted.get_ydata()) == {share}
    assert f'majority class: {100 * share:.1f} %' in _texts(axes)


def test_equal_lines_are_both_seen(tmp_path):
  """The thick line of the best cluster lies below the thin ones."""
  fake_workdir.write(tmp_path)
  for axes in accuracy_plot.draw(run_lib.read(tmp_path)).axes:
    lines = [line for line in axes.lines if line.get_linestyle() == '-']
    lines.sort(key=lambda line: line.get_linewidth())
    assert lines[-1].get_zorder() < lines[0].get_zorder()


def test_the_best_cluster_stands_out(tmp_path):
  run = fake_workdir.read(tmp_path)
  upright = accuracy_plot.draw(run).axes[0]
  widest = max(upright.lines, key=lambda line: line.get_linewidth())
  assert widest.get_color() == style.source_colors(run)[0]
  assert widest.get_ydata()[-1] == run.held_out_scores[:, 0].max()


@pytest.mark.parametrize('end', ['nan', 'inf'])
def test_a_cluster_that_diverged_is_not_the_best(tmp_path, end):
  """Though its last finite score is higher."""
  run = fake_workdir.read(tmp_path)
  name = 'held_out/upright/cluster_{}/accuracy'.format
  run.rounds.columns[name(0)] = (*['0.99'] * 20, *[end, ''] * 5, end)
  run.rounds.columns[name(1)] = (*['0.5'] * 30, '')
  upright = accuracy_plot.draw(run).axes[0]
  widest = max(upright.lines, key=lambda line: line.get_linewidth())
  assert set(widest.get_ydata()) == {0.5}
  texts = _texts(upright)
  assert 'cluster 0: diverged by round 20' in texts
  assert 'cluster 1: 50.0 %' in texts


@pytest.mark.parametrize(
  ('num_clusters', 'score'), [(2, 'accuracy'), (5, 'mse')]
)
def test_no_cluster_stands_out_if_all_diverged(tmp_path, num_clusters, score):
  run = fake_workdir.read(tmp_path, num_clusters=num_clusters, score=score)
  for cluster in range(num_clusters):
    name = f'held_out/upright/cluster_{cluster}/{score}'
    run.rounds.columns[name] = (*['0.5'] * 30, 'nan')
  upright = accuracy_plot.draw(run).axes[0]
  assert max(line.get_linewidth() for line in upright.lines) < 3
  # Of many clusters only the best would have a label.
  assert bool(_texts(upright)) == (num_clusters == 2)


def test_many_clusters_only_name_the_best(tmp_path):
  names = tuple(f'source_{i}' for i in range(6))
  run = fake_workdir.read(tmp_path, num_clusters=6, source_names=names)
  figure = accuracy_plot.draw(run)
  assert len(figure.axes) == 7
  assert len(_texts(figure.axes[0])) == 2


def test_a_long_name_of_a_source_is_wrapped(tmp_path):
  name = 'north_region_branch_with_a_rather_long_name'
  run = fake_workdir.read(tmp_path, num_rounds=2, source_names=(name, 'b'))
  title = accuracy_plot.draw(run).axes[0].get_title()
  assert max(map(len, title.split('\n'))) <= 30
  assert title.replace('\n', '') == f'on held-out {name}'


def test_an_error_has_no_majority_class(tmp_path):
  figure = accuracy_plot.draw(fake_workdir.read(tmp_path, score='mse'))
  assert not any('majority' in text for text in _texts(figure.axes[0]))


@pytest.mark.parametrize(
  ('gone', 'left'),
  # The clients' panel is the last, with three lines; dotted ones not counted.
  [('held_out/', [3]), ('participating/test/personal', [2, 2, 2])],
)
def test_missing_columns_leave_a_panel_or_line_out(tmp_path, gone, left):
  fake_workdir.write(tmp_path)
  path = tmp_path / 'metrics.csv'
  path.write_text(path.read_text().replace(gone, 'gone/'))
  figure = accuracy_plot.draw(run_lib.read(tmp_path))
  found = [
    sum(line.get_linestyle() == '-' for line in axes.lines)
    for axes in figure.axes
  ]
  assert found == left


def test_only_the_initial_state(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=0)
  path = tmp_path / 'evaluation' / 'summary.json'
  names = ['upright', 'rotated_90']
  sealed_json.write(
    path,
    {
      'source_names': names,
      'num_clusters': 2,
      'planted_names': None,
      'matched_sources': names,
    },
  )
  figure = accuracy_plot.draw(run_lib.read(tmp_path))
  for axes, num_models in zip(figure.axes, (2, 2, 3), strict=True):
    # A line of one point is seen by its marker.
    markers = [
      (line.get_marker(), len(line.get_xdata())) for line in axes.lines
    ]
    assert markers == [('o', 1)] * num_models


def test_the_caption_tells_only_of_panels_that_are_there(tmp_path):
  fake_workdir.write(tmp_path, num_rounds=2)
  path = tmp_path / 'metrics.csv'
  whole = path.read_text()
  path.write_text(whole.replace('held_out/', 'gone/'))
  caption = accuracy_plot.PICTURE.caption(run_lib.read(tmp_path))
  assert caption.startswith('The models of clients on their test examples.')
  assert 'held-out' not in caption
  path.write_text(whole.replace('test/', 'gone/'))
  caption = accuracy_plot.PICTURE.caption(run_lib.read(tmp_path))
  assert 'held-out' in caption and 'Last panel' not in caption
