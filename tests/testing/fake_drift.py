"""Writes the drift report of a run that never was."""

import pathlib

from tff_algos.core import sealed_json

# Client -> status, shifts, parent's cluster and loss, new cluster and loss.
_CLIENTS = {
  'client_0000': ('stayed', 0.1, 0.2, 0, 0.5, 0, 0.6, 0),
  'client_0001': ('stayed', 0.3, 0.4, 1, 0.7, 0, 0.9, 0),
  'client_0002': ('departed', '', '', 1, 0.4, '', '', ''),
  'client_0003': ('new', '', '', '', '', 1, 2.5, 1),
}
_COLUMNS = (
  *('client_id', 'status', 'label_shift', 'feature_shift'),
  *('parent_cluster_id', 'parent_loss', 'cluster_id', 'loss', 'is_far'),
)


def write(
  workdir: pathlib.Path,
  *,
  sources: tuple[str, ...] = ('upright', 'rotated_90'),
  has_losses: bool = True,
) -> None:
  """Writes what binaries.drift does; without losses as after retention."""
  of_losses = {
    'changed_clusters': 0.5,
    'far_clients': 1.0,
    'loss_increase': 0.25,
  }
  content = {
    'parent': '2026-11-20',
    'parent_round': 30,
    'measures': {
      'label_shift': 0.05,
      'source_label_shift': 0.1,
      'client_label_shift': 0.2,
      'feature_shift': 0.15,
      'source_feature_shift': 0.3,
      'client_feature_shift': 0.3,
      'new_clients': 1 / 3,
      'departed_clients': 1 / 3,
      **(of_losses if has_losses else dict.fromkeys(of_losses)),
    },
    'missing': {} if has_losses else dict.fromkeys(of_losses, 'removed'),
    'sources': {
      name: {'label_shift': 0.1 * index, 'feature_shift': 0.3 * index}
      for index, name in enumerate(sources)
    },
    **({'far_loss': 1.5} if has_losses else {}),
  }
  content['thresholds'] = dict.fromkeys(content['measures']) | {
    'label_shift': 0.2,
    'new_clients': 0.5,
  }
  sealed_json.write(workdir / 'drift.json', content)
  end = len(_COLUMNS) if has_losses else 4
  rows = [
    ','.join(map(str, row[:end]))
    for row in (_COLUMNS, *((name, *one) for name, one in _CLIENTS.items()))
  ]
  (workdir / 'drift_clients.csv').write_text('\n'.join(rows) + '\n')
