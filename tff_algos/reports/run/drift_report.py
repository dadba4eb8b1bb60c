"""Drift report of a run, as `binaries.drift` wrote it."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from tff_algos.core import errors, records, sealed_json
from tff_algos.evaluation import drift
from tff_algos.reports.plotting import table as table_lib

# Measure -> text, and whether it is a share in per cent.
_LABELS = {
  'label_shift': ('labels: all examples', False),
  'source_label_shift': ('labels: largest of a source', False),
  'client_label_shift': ('labels: mean over clients', False),
  'feature_shift': ('features: all examples', False),
  'source_feature_shift': ('features: largest of a source', False),
  'client_feature_shift': ('features: mean over clients', False),
  'new_clients': ('new clients', True),
  'departed_clients': ('departed clients', True),
  'changed_clusters': ('clients in another cluster', True),
  'far_clients': ('new clients far from every cluster', True),
  'loss_increase': ("increase of the loss of the parent's models", True),
}


class DriftReport(NamedTuple):
  """A drift report.

  Attributes:
    content: `drift.json`.
    clients: `drift_clients.csv`.
  """

  content: Mapping[str, Any]
  clients: table_lib.Table


class Row(NamedTuple):
  """One measure of the page's table.

  Attributes:
    label: Name of the measure.
    value: Its value as text, or why it has none.
    limit: Its threshold as text; '' if it has none.
  """

  label: str
  value: str
  limit: str


def read(workdir: pathlib.Path) -> DriftReport | None:
  """Returns the drift report of a run; None if there is none.

  Raises:
    DataError: If it cannot be read.
  """
  path = workdir / drift.REPORT
  if not os.path.lexists(path):
    return None
  remedy = (
    f'Remove {path} and {workdir / drift.CLIENTS}, or measure the drift again '
    'with binaries.drift.'
  )
  content = sealed_json.read(path, remedy)
  found = records.first_problem(workdir, content.get('files', {}))
  if found:
    raise errors.DataError(f'{found} (by {path}). {remedy}')
  return DriftReport(content, table_lib.read(workdir / drift.CLIENTS))


def rows(report: DriftReport) -> list[Row]:
  """Returns the table of all measures."""
  table = []
  for measure, (label, is_share) in _LABELS.items():
    value = report.content['measures'][measure]
    table.append(
      Row(
        label,
        report.content['missing'][measure]
        if value is None
        else _text(value, is_share=is_share),
        _text(report.content['thresholds'][measure], is_share=is_share),
      )
    )
  return table


def _text(value: float | None, *, is_share: bool) -> str:
  if value is None:
    return ''
  return f'{100 * value:.1f} %' if is_share else f'{value:.3f}'
