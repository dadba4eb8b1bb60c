"""Damaged runs: refused by the name of the file, and the advice works."""

import pytest

from tests.testing import damaged_runs

_CHECKED = {
  'metrics.csv': damaged_runs.FLIPPED,
  'checkpoints/round_000003/checkpoint.json': damaged_runs.DELETED,
  'parent.json': damaged_runs.DELETED,
}


@pytest.fixture(scope='module')
def laboratory(tmp_path_factory):
  return damaged_runs.Laboratory(tmp_path_factory.mktemp('damaged'))


def _assert_named(outcome):
  """The error names the file, and its advice works."""
  assert outcome.kind == damaged_runs.NAMED, outcome
  assert not any(failure for _, failure in outcome.advice), outcome


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'damage'), _CHECKED.items())
def test_training_refuses_and_its_advice_works(laboratory, name, damage):
  _assert_named(laboratory.run(name, damage, 'resume'))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['evaluation/clients.csv', 'config.json'])
def test_reports_refuse_and_their_advice_works(laboratory, name):
  _assert_named(laboratory.run(name, damaged_runs.SWAPPED, 'report'))


@pytest.mark.slow
def test_all_kinds_of_files_are_there(laboratory):
  assert {*_CHECKED, 'drift.json', 'gate.json', 'lineage.json'} <= {
    *laboratory.paths()
  }


@pytest.mark.verify
def test_every_damage_of_every_file(laboratory):
  assert not damaged_runs.table(laboratory)
