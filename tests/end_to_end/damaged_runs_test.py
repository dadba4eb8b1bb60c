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


def _complaint(outcome, reader):
  """Returns what is wrong with an outcome; '' if nothing is."""
  if outcome.kind in (damaged_runs.UNDISTURBED, damaged_runs.WITHOUT):
    return ''
  if outcome.kind != damaged_runs.NAMED:
    return f'{reader}: {outcome}'
  failed = [one for one in outcome.advice if one[1]]
  return f'{reader}: {outcome.text}: {failed}' if failed else ''


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'damage'), _CHECKED.items())
def test_training_refuses_and_its_advice_works(laboratory, name, damage):
  outcome = laboratory.run(name, damage, 'resume')
  assert outcome.kind == damaged_runs.NAMED
  assert not _complaint(outcome, 'resume')


@pytest.mark.slow
@pytest.mark.parametrize('name', ['evaluation/clients.csv', 'config.json'])
def test_reports_refuse_and_their_advice_works(laboratory, name):
  outcome = laboratory.run(name, damaged_runs.SWAPPED, 'report')
  assert outcome.kind == damaged_runs.NAMED
  assert not _complaint(outcome, 'report')


@pytest.mark.slow
def test_all_kinds_of_files_are_there(laboratory):
  assert {*_CHECKED, 'drift.json', 'gate.json', 'lineage.json'} <= {
    *laboratory.paths()
  }


@pytest.mark.verify
def test_every_damage_of_every_file(laboratory):
  complaints = []
  for name in laboratory.paths():
    for damage in laboratory.damages(name):
      for reader in damaged_runs.READERS:
        found = laboratory.run(name, damage, reader)
        if complaint := _complaint(found, reader):
          complaints.append(f'{name} {damage}, {complaint}')
  assert not complaints, '\n'.join(complaints)
