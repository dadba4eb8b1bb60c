"""Picture: test score over cumulative communication."""

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import run as run_lib


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws the clients' scores over the numbers sent and received so far.

  Returns:
    None without communication counts or scores.
  """
  down, up, both = run.sent('downlink'), run.sent('uplink'), run.sent()
  lines = style.client_lines(run)
  if down is None or up is None or both is None or not lines:
    return None
  total = both.values[-1]
  if not total:
    return None
  word = style.score_word(run).capitalize()
  figure = style.new_figure(
    3.9, f"{word} on the clients' test examples against communication"
  )
  axes = figure.subplots()
  style.fit_scores(
    run, axes, np.concatenate([series.values for _, series, _ in lines])
  )
  sent_by_round = dict(zip(both.rounds, both.values, strict=True))
  labels = []
  for index, (name, series, color) in enumerate(lines):
    sent = [sent_by_round[number] for number in series.rounds]
    axes.plot(
      sent,
      series.values,
      color=color,
      marker=style.marker(series),
      markersize=3.5,
      # Later lines are thinner, so that equal ones remain visible.
      linewidth=3.0 if index == 0 else 1.3,
    )
    text = style.end_text(run, name, series)
    labels.append(style.EndLabel(text, series.values[-1], color, index == 0))
  spell = ticker.EngFormatter(places=1, sep='').format_eng
  axes.set_title(
    f'downlink {spell(down.values[-1])} + uplink {spell(up.values[-1])} = '
    f'{spell(total)} floats in {run.num_rounds} rounds'
  )
  axes.set_xlim(0, total)
  axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  axes.set_xlabel('cumulative communication (floats)')
  axes.set_ylabel(style.score_label(run))
  style.format_scores(run, axes.yaxis)
  style.label_ends(axes, labels)
  return figure


PICTURE = picture.Picture(
  name='cost.png',
  caption=(
    'Score against cumulative communication: numbers sent from the server to '
    'all clients of the rounds (downlink) and back (uplink).'
  ),
  draw=draw,
)
