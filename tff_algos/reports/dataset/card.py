"""Dataset card: a self-contained HTML page with embedded pictures."""

import base64
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tff_algos.data import layout, statistics
from tff_algos.data import schema as schema_lib
from tff_algos.reports.dataset import (
  distances_plot,
  labels_plot,
  mixtures_plot,
  picture_rows,
  samples_plot,
  sizes_plot,
  sources_plot,
)
from tff_algos.reports.dataset import facts as facts_lib
from tff_algos.reports.plotting import html, picture

# To be raised when the page for the same statistics changes.
CARD_VERSION = 7
# Longer values of the ground truth are truncated; the manifest has them whole.
_MAX_CHARS = 1000


PICTURES = (
  samples_plot.PICTURE,
  labels_plot.PICTURE,
  mixtures_plot.PICTURE,
  sizes_plot.PICTURE,
  distances_plot.PICTURE,
  sources_plot.PICTURE,
)


def signature(statistics_sha256: str) -> str:
  """Returns the provenance line of a card: card version and statistics hash."""
  return f'card {CARD_VERSION} of statistics {statistics_sha256}'


def render(folder: pathlib.Path) -> str:
  """Returns the page of a version of a dataset.

  The same version and statistics give the same text.

  Args:
    folder: The version's folder.

  Raises:
    DataError: If the version or its statistics are missing or damaged.
  """
  facts = facts_lib.read(folder)
  pictures = [
    (base64.b64encode(one.png).decode(), one.caption)
    for one in picture.draw_all(PICTURES, facts)
  ]
  recipe = facts.manifest['recipe']
  return html.render(
    'dataset/card.html.jinja',
    signature=signature(facts.statistics_sha256),
    name=facts.title,
    version=facts.manifest['version'],
    heading=heading(facts),
    summary=summary(facts),
    splits=splits(facts),
    sources=sources(facts),
    pictures=pictures,
    recipe=html.flatten(recipe),
    planted=planted(facts),
    checksums=sorted(facts.manifest['sources'].items()),
    files=sorted(
      (name, f'{described["size_bytes"]:,}', described['sha256'])
      for name, described in facts.manifest['files'].items()
    ),
    manifest_checksum=facts.manifest['checksum'],
    statistics_name=layout.STATISTICS,
    client_statistics_name=layout.CLIENT_STATISTICS,
  )


def heading(facts: facts_lib.Facts) -> str:
  """Returns one sentence: task, shape, examples, clients and sources."""
  clients = facts.manifest['num_clients']
  schema = facts.schema
  task = 'regression'
  if schema.num_classes:
    task = f'classification into {schema.num_classes} classes'
  features = f'features {" x ".join(map(str, schema.x_shape))}'
  if len(schema.x_shape) == 1:
    features = f'{schema.x_shape[0]} features'
  groups = ', '.join(f'{count:,} {name}' for name, count in clients.items())
  count = schema.num_sources
  return (
    f'{sum(sum(s.values()) for s in facts.manifest["num_examples"].values()):,}'
    f' examples of {sum(clients.values()):,} clients '
    f'({groups}), from {count} source distribution{"s" if count > 1 else ""}, '
    f'for {task}; {features}.'
  )


def summary(facts: facts_lib.Facts) -> list[tuple[str, str]]:
  """Returns (label, value) of the key figures."""
  rows = []
  partition = facts.manifest['recipe'].get('partition', {})
  rows.append(('partition', str(partition.get('law', '–'))))
  rows.append(('seed', str(facts.manifest['recipe'].get('seed', '–'))))
  sizes = facts.sizes[schema_lib.TRAIN]
  if len(sizes):
    rows.append(
      (
        'training examples per client',
        f'{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,g}, '
        f'mean {sizes.mean():,.1f}',
      )
    )
  if empty := int(np.sum(sizes == 0)):
    rows.append(('clients without training examples', f'{empty:,}'))
  rows += _label_rows(facts)
  counters = facts.manifest['counters']
  rows.append(
    (
      'raw examples',
      f'{counters["raw_examples"]:,} read, of which '
      f'{counters["dead_letters"]:,} malformed (dead letters)',
    )
  )
  return rows


def _label_rows(facts: facts_lib.Facts) -> list[tuple[str, str]]:
  clients = picture_rows.similar_side_by_side(facts)
  if not facts.schema.num_classes or len(clients) < 2:
    return []
  has = (facts.labels[clients] > 0).sum(axis=1)
  found, chance = distances_plot.pair_distances(facts.labels, clients)
  return [
    (
      'classes per client',
      f'{has.min()} to {has.max()}, median {np.median(has):g}',
    ),
    (
      'total variation between label distributions of two clients',
      f'mean {found.mean():.3f}; IID clients of the same sizes '
      f'{chance.mean():.3f}',
    ),
  ]


def planted(facts: facts_lib.Facts) -> list[tuple[str, str]]:
  """Returns (label, value) of the ground truth of source and partition."""
  told = {
    name: facts.manifest.get(name, {}) for name in ('planted', 'source_facts')
  }
  return [
    (what, value if len(value) <= _MAX_CHARS else f'{value[:_MAX_CHARS]}…')
    for what, value in html.flatten({k: v for k, v in told.items() if v})
  ]


def splits(facts: facts_lib.Facts) -> list[tuple[str, ...]]:
  """Returns (clients, split, examples, mean and deviation of x, of y)."""
  rows = []
  for group in schema_lib.GROUPS:
    for split in schema_lib.SPLITS:
      total = facts.totals[group][split]
      if total['num_examples']:
        rows.append((group, split, *_numbers(facts, total)))
  return rows


def sources(facts: facts_lib.Facts) -> list[tuple[str, ...]]:
  """Returns the same numbers by source, of clients and held-out examples."""
  return [
    (name, where, *_numbers(facts, facts.totals[kind][name]))
    for name in facts.schema.source_names
    for kind, where in (
      (statistics.SOURCE, 'clients'),
      (layout.HELD_OUT, 'held out'),
    )
    if facts.totals[kind][name]['num_examples']
  ]


def _numbers(
  facts: facts_lib.Facts, total: Mapping[str, Any]
) -> tuple[str, ...]:
  x, y = total['x'], total.get('y')
  return (
    f'{total["num_examples"]:,}',
    '–' if facts.schema.has_tokens else _moments(x),
    f'{x["min"]:.3g} to {x["max"]:.3g}',
    _moments(y) if y else _entropy(total['label_counts']),
  )


def _moments(moments: Mapping[str, float]) -> str:
  return f'{moments["mean"]:.3g} ± {moments["std"]:.3g}'


def _entropy(counts: list[int]) -> str:
  """Returns the number of classes with examples and their entropy."""
  shares = [count / sum(counts) for count in counts if count]
  bits = -sum(share * math.log2(share) for share in shares)
  noun = 'class' if len(shares) == 1 else 'classes'
  return f'{len(shares)} {noun}, entropy {abs(bits):.2f} bits'
