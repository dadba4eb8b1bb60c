"""Failures; `run_test.py` sees it succeed."""

import shutil

import psutil
import pytest

from tff_algos.core import errors
from tff_algos.experiments import served_prediction


def _children() -> set[int]:
  return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.slow
def test_no_model_to_serve(digits_dataset):
  before = _children()
  with (
    pytest.raises(errors.UserError, match='server did not start'),
    served_prediction.asking(digits_dataset) as ask,
  ):
    ask()
  assert _children() == before
  assert not (digits_dataset / 'export').exists()


@pytest.mark.verify
def test_server_that_knows_no_such_model(finished_run, tmp_path):
  """The client process fails; the server ends all the same."""
  shutil.copytree(finished_run.folder / 'dataset', tmp_path / 'dataset')
  shutil.copytree(
    finished_run.folder / 'export' / 'cluster_models',
    tmp_path / 'export' / 'cluster_models',
  )
  before = _children()
  with (
    pytest.raises(errors.UserError, match='ended with status 1'),
    served_prediction.asking(tmp_path) as ask,
  ):
    ask()
  assert _children() == before


def test_missing_dataset(tmp_path):
  with (
    pytest.raises(errors.DataError, match='no federated dataset'),
    served_prediction.asking(tmp_path),
  ):
    pass


@pytest.mark.parametrize(
  ('value', 'classes', 'expected'),
  [
    (1, ('no', 'yes'), 'yes'),
    (1, (), '1'),
    (20.25, (), '20.25'),
    ([1, 0], ('a', 'b'), 'b a'),
    ([3, 12], (), '3 12'),
  ],
)
def test_labels_in_words(value, classes, expected):
  assert served_prediction.spell(value, classes) == expected
