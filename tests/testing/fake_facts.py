"""Facts about a dataset that never was, of any size."""

import numpy as np

from tff_algos.data import schema as schema_lib
from tff_algos.reports.dataset import facts as facts_lib


def make(
  *,
  num_clients: int = 12,
  num_sources: int = 2,
  num_classes: int = 5,
  x_shape: tuple[int, ...] = (4, 4, 1),
  source_names: tuple[str, ...] | None = None,
  natural: bool = False,
  clusters: bool = False,
  size: int = 40,
  source_options: dict | None = None,
) -> facts_lib.Facts:
  """Clients of two kinds in turn: most examples of one source and few labels."""
  rng = np.random.default_rng(5)
  names = source_names or tuple(f'source_{s}' for s in range(num_sources))
  kind = np.arange(num_clients) % num_sources
  mixture = np.full((num_clients, num_sources), 0.1 / max(1, num_sources - 1))
  mixture[np.arange(num_clients), kind] = 0.9 if num_sources > 1 else 1.0
  sources = rng.multinomial(size, mixture)
  labels = _labels(kind, num_classes, size, rng)
  schema = schema_lib.Schema(
    x_dtype='float32',
    x_shape=x_shape,
    x_scale=1.0,
    x_offset=0.0,
    task='classification' if num_classes else 'regression',
    num_classes=num_classes,
    source_names=names,
  )
  ids = tuple(f'client_{i:05d}' for i in range(num_clients))
  none = np.zeros(num_clients, np.int64)
  return facts_lib.Facts(
    manifest=_manifest(schema, num_clients, size, source_options),
    schema=schema,
    totals=_totals(schema, sources, labels, rng),
    statistics_sha256='f' * 64,
    clients={
      'client_id': list(ids),
      'y_mean': rng.normal(size=num_clients).tolist(),
      'y_std': rng.gamma(2, size=num_clients).tolist(),
    },
    client_ids=ids,
    sizes={'train': none + size, 'validation': none, 'test': none},
    labels=labels,
    sources=sources,
    mixture=None if natural else mixture,
    clusters=kind if clusters else None,
    samples=tuple(_samples(schema, s, rng) for s in range(num_sources)),
  )


def _labels(kind, num_classes, size, rng):
  if not num_classes:
    return np.zeros((len(kind), 0), np.int64)
  weights = np.full((len(kind), num_classes), 0.02)
  weights[np.arange(len(kind)), kind % num_classes] = 1
  return rng.multinomial(size, weights / weights.sum(1, keepdims=True))


def _samples(schema, source, rng):
  return schema_lib.Examples(
    rng.random((30, *schema.x_shape)).astype(np.float32),
    (np.arange(30) % max(schema.num_classes, 1)).astype(schema.y_dtype),
    np.full(30, source, np.int32),
  )


def _manifest(schema, num_clients, size, source_options):
  counts = {'participating': num_clients * size, 'unseen': 0}
  return {
    'version': '0123456789abcdef',
    'checksum': 'c' * 64,
    'num_clients': {'participating': num_clients, 'unseen': 0},
    'num_examples': {
      'train': counts,
      'validation': dict.fromkeys(counts, 0),
      'test': dict.fromkeys(counts, 0),
    },
    'counters': {'raw_examples': num_clients * size, 'dead_letters': 0},
    'recipe': {
      'source': {'name': 'invented', 'options': source_options or {}},
      'seed': 3,
    },
    'sources': {'invented': 'a' * 64},
    'files': {'a.parquet': {'size_bytes': 12345, 'sha256': 'b' * 64}},
  }


def _totals(schema, sources, labels, rng):
  def total(counts, num_examples, mean):
    moments = {'mean': mean, 'std': 1.0, 'min': -1.0, 'max': 3.0}
    num_features = int(np.prod(schema.x_shape))
    features = {
      'mean': (mean + rng.random(num_features)).tolist(),
      'std': np.linspace(1, 2, num_features).tolist(),
    }
    if not schema.num_classes:
      features['covariance_with_y'] = rng.normal(size=num_features).tolist()
    return {
      'num_examples': int(num_examples),
      'label_counts': counts.tolist(),
      'source_counts': [],
      'x': moments if num_examples else None,
      'features': features,
      **({} if schema.num_classes else {'y': moments}),
    }

  count = int(sources.sum())
  empty = total(np.zeros(schema.num_classes, int), 0, 0.0)
  by_source = {
    name: total(
      labels[sources.argmax(axis=1) == s].sum(axis=0),
      sources[:, s].sum(),
      0.1 * s,
    )
    for s, name in enumerate(schema.source_names)
  }
  return {
    'participating': {
      'train': total(labels.sum(axis=0), count, 0.0),
      'validation': empty,
      'test': empty,
    },
    'unseen': dict.fromkeys(schema_lib.SPLITS, empty),
    'source': by_source,
    'held_out': by_source,
  }
