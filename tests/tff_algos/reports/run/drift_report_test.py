"""The drift report of a run, as a table."""

import pytest

from tests.testing import fake_drift
from tff_algos.core import errors
from tff_algos.evaluation import drift
from tff_algos.reports.run import drift_report


def test_the_table_has_every_measure_with_its_threshold(tmp_path):
  fake_drift.write(tmp_path)
  report = drift_report.read(tmp_path)
  rows = drift_report.rows(report)
  assert len(rows) == len(drift.DriftConfig().thresholds())
  assert rows[0] == ('labels: all examples', '0.050', '0.200')
  assert ('new clients', '33.3 %', '50.0 %') in rows
  assert ("increase of the loss of the parent's models", '25.0 %', '') in rows
  assert report.clients.texts('status')[2:] == ('departed', 'new')


def test_a_missing_measure_says_why(tmp_path):
  fake_drift.write(tmp_path, has_losses=False)
  rows = drift_report.rows(drift_report.read(tmp_path))
  assert ('clients in another cluster', 'removed', '') in rows


def test_without_a_parent_there_is_none(tmp_path):
  assert drift_report.read(tmp_path) is None


def test_a_damaged_report_is_named(tmp_path):
  (tmp_path / 'drift.json').write_text('{')
  with pytest.raises(
    errors.DataError, match=r'drift\.json is damaged: it is no JSON'
  ):
    drift_report.read(tmp_path)
