"""Picture: sample images or feature moments of each source distribution."""

import numpy as np
from matplotlib import figure as figure_lib
from matplotlib import ticker

from tff_algos.data import statistics
from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.plotting import picture, style

_MAX_SAMPLES = 12
_MAX_SOURCES = 12
# Of the names of sources, in inches.
_NAME_WIDTH = 1.4
_MAX_NAMED_FEATURES = 40
_LONGEST_CLASS = 9


def draw(facts: facts_lib.Facts) -> figure_lib.Figure | None:
  """Draws images of each source distribution, or moments of its features.

  Returns:
    None if no source distribution has examples, or features are token ids,
    which have no mean.
  """
  if facts.schema.has_tokens:
    return None
  totals = facts.totals[statistics.SOURCE]
  shown = [
    s
    for s, examples in enumerate(facts.samples)
    if examples.num_examples
    and totals[facts.schema.source_names[s]]['num_examples']
  ][:_MAX_SOURCES]
  if not shown:
    return None
  if facts.schema.is_image:
    return _draw_images(facts, shown)
  return _draw_profiles(facts, shown)


def choose(y: np.ndarray, count: int) -> np.ndarray:
  """Returns positions of `count` examples, spread over the classes.

  Of labels at several places, `[n, places]`, those are the first of each.
  """
  y = y[:, 0] if y.ndim > 1 else y
  order = np.argsort(y, kind='stable')
  sorted_y = y[order]
  is_new = np.concatenate([[True], sorted_y[1:] != sorted_y[:-1]])
  # Rank of each example within its class: all ranks 0 first, then 1.
  start = np.maximum.accumulate(np.where(is_new, np.arange(len(y)), 0))
  rank = np.arange(len(y)) - start
  chosen = order[np.lexsort((sorted_y, rank))[:count]]
  return chosen[np.argsort(y[chosen], kind='stable')]


def _draw_images(facts: facts_lib.Facts, shown: list[int]) -> figure_lib.Figure:
  height, width, _ = facts.schema.x_shape
  num_samples = _MAX_SAMPLES
  if 0 < facts.schema.num_classes <= _MAX_SAMPLES:
    num_samples -= _MAX_SAMPLES % facts.schema.num_classes
  cell = (style.WIDTH - _NAME_WIDTH) / (num_samples + 1)
  figure = style.new_figure(
    0.75 + (0.24 + cell * height / width) * len(shown),
    'Examples of each source distribution',
  )
  grid = figure.subplots(len(shown), num_samples + 1, squeeze=False)
  for axes in grid.flat:
    axes.set_axis_off()
  low, high = _brightness(facts)
  colors = style.colors(facts.schema.num_sources)
  for row, s in zip(grid, shown, strict=True):
    name = facts.schema.source_names[s]
    mean = facts.totals[statistics.SOURCE][name]['features']['mean']
    _show(row[0], np.reshape(mean, facts.schema.x_shape), low, high)
    row[0].set_title('mean', loc='center', fontsize=8, fontweight='normal')
    row[0].text(
      -0.12,
      0.5,
      name,
      transform=row[0].transAxes,
      ha='right',
      va='center',
      color=colors[s],
      fontweight='bold',
    )
    examples = facts.samples[s]
    rows = choose(examples.y, num_samples)
    for axes, i in zip(row[1:], rows, strict=False):
      _show(axes, examples.x[i], low, high)
      axes.set_title(
        _label(facts, examples.y[i]),
        loc='center',
        fontsize=8,
        fontweight='normal',
      )
  return figure


def _label(facts: facts_lib.Facts, y: np.ndarray) -> str:
  """Returns the class at each place, or the value of a regression's label."""
  if not facts.schema.num_classes:
    return f'{y:.3g}'
  name = ' '.join(facts.class_names[place] for place in np.ravel(y))
  return (
    name if len(name) <= _LONGEST_CLASS else f'{name[: _LONGEST_CLASS - 1]}…'
  )


def _brightness(facts: facts_lib.Facts) -> tuple[float, float]:
  """Returns the values drawn black and white: the range of all examples."""
  ranges = [
    total['x']
    for total in facts.totals[statistics.SOURCE].values()
    if total['x']
  ]
  return min(r['min'] for r in ranges), max(r['max'] for r in ranges)


def _show(axes, image: np.ndarray, low: float, high: float) -> None:
  scaled = (image - low) / ((high - low) or 1.0)
  if image.shape[-1] == 1:
    axes.imshow(scaled[..., 0], cmap='gray', vmin=0, vmax=1)
  else:
    axes.imshow(np.clip(scaled, 0, 1))


def _draw_profiles(
  facts: facts_lib.Facts, shown: list[int]
) -> figure_lib.Figure:
  panels = [
    ('mean', 'mean of each feature'),
    ('std', 'standard deviation of each feature'),
  ]
  if not facts.schema.num_classes:
    panels[1] = (
      'covariance_with_y',
      'covariance of each feature with the label',
    )
  figure = style.new_figure(3.9, 'Features of each source distribution')
  colors = style.colors(facts.schema.num_sources)
  num_features = int(np.prod(facts.schema.x_shape))
  positions = np.arange(num_features)
  width = 0.8 / len(shown)
  left_and_right = figure.subplots(1, 2)
  for axes, (key, title) in zip(left_and_right, panels, strict=True):
    for i, s in enumerate(shown):
      name = facts.schema.source_names[s]
      values = facts.totals[statistics.SOURCE][name]['features'][key]
      if num_features <= _MAX_NAMED_FEATURES:
        shift = (i - (len(shown) - 1) / 2) * width
        axes.bar(positions + shift, values, width, color=colors[s], label=name)
      else:
        axes.plot(positions, values, color=colors[s], linewidth=1, label=name)
    if key == 'mean':
      _show_in_proportion(axes, facts, shown)
    axes.set_axisbelow(True)
    axes.set_title(title)
    axes.set_xlabel('feature')
    if num_features <= _MAX_NAMED_FEATURES:
      _name_features(axes, facts)
    else:
      axes.xaxis.set_major_locator(ticker.MaxNLocator(12, integer=True))
  if len(shown) > 1:
    left_and_right[-1].legend(loc='center left', bbox_to_anchor=(1, 0.5))
  return figure


def _name_features(axes, facts: facts_lib.Facts) -> None:
  names = facts.feature_names
  is_long = max(map(len, names)) > 3
  axes.set_xticks(
    range(len(names)),
    names,
    fontsize=7.5,
    rotation=90 if is_long else 0,
  )


def _show_in_proportion(axes, facts: facts_lib.Facts, shown: list[int]) -> None:
  """Widens the y axis if the means differ little compared to the deviations."""
  by_name = facts.totals[statistics.SOURCE]
  totals = [by_name[facts.schema.source_names[s]] for s in shown]
  typical = np.median([total['features']['std'] for total in totals])
  low, high = axes.get_ylim()
  axes.set_ylim(min(low, -typical), max(high, typical))


PICTURE = picture.Picture(
  name='samples.png',
  caption=lambda facts: (
    "Mean of all clients' images of each source distribution, and held-out "
    'examples with their labels (examples of one client if none are held out).'
    if facts.schema.is_image
    else "Moments of the features of all clients' examples."
  ),
  draw=draw,
)
