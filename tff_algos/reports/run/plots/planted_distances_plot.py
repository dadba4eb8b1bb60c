"""Picture: histogram of distances between memberships and true mixtures.

After Figure 11 of PPFL (Di et al., arXiv:2310.14337).
"""

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.reports.plotting import picture, style
from tff_algos.reports.run import planted_distances
from tff_algos.reports.run import run as run_lib

# Bins of 5 points; total variation is 100 at most.
_BINS = np.linspace(0, 1, 21)
_COLORS = ('#9aa0a6', '#0072b2')


def draw(run: run_lib.Run) -> figure_lib.Figure | None:
  """Draws a histogram over clients of the first and the last evaluation.

  Returns:
    None without true mixtures or saved memberships.
  """
  ends = planted_distances.at_both_ends(run)
  if not ends:
    return None
  figure = style.new_figure(
    3.6, 'Total variation between memberships and true mixtures'
  )
  panels = figure.subplots(1, len(ends), squeeze=False, sharey=True)[0]
  for axes, end, color in zip(panels, ends, _COLORS[-len(ends) :], strict=True):
    _draw_histogram(axes, end, color)
  panels[0].set_ylabel('clients')
  return figure


def _draw_histogram(axes, end, color: str) -> None:
  values, median = end.values, float(np.median(end.values))
  axes.set_axisbelow(True)
  # Memberships that do not sum to 1 may exceed it; the last bar has
  # them.
  axes.hist(np.minimum(values, 1.0), _BINS, rwidth=0.92, color=color)
  axes.axvline(median, color=style.INK, linewidth=1.2, linestyle=':')
  axes.set_xlim(0, 1)
  title = (
    f'round {end.round_num}: median {100 * median:.1f} (dotted), mean '
    f'{100 * values.mean():.1f}'
  )
  if end.num_unsampled:
    count = len(values) + end.num_unsampled
    title += (
      f'\n{end.num_unsampled:,} of {count:,} clients left out: not sampled yet'
    )
  axes.set_title(title)
  axes.set_xlabel('total variation (percentage points)')
  style.format_percent(axes.xaxis)
  axes.yaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))


PICTURE = picture.Picture(
  name='planted_distances.png',
  caption=(
    'Histogram over clients of the total variation (half the sum of absolute '
    "differences) between a client's memberships and its true shares, at the "
    'first and the last evaluation with memberships. Clusters are matched to '
    'sources at the last evaluation. 0: equal shares; 100: disjoint support.'
  ),
  draw=draw,
)
