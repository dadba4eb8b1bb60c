import json

import pytest

from pipelines.examples import cleaning
from pipelines.publishing import dead_letters
from pipelines.publishing import staging as staging_lib
from tff_algos.core import errors

_LETTER = cleaning.DeadLetter('train', 4, 'torn', row={'a': '\udc80'})


def _refuse(dataset, letters, error):
  with staging_lib.open_staging(dataset) as staging:
    with dead_letters.kept_if_refused(staging, dataset, 'abc'):
      dead_letters.write(staging, letters)
      raise error
  return dataset / 'quarantine' / 'abc.jsonl'


@pytest.mark.parametrize('kind', [errors.DataError, errors.PartitionError])
def test_dead_letters_of_a_refused_build_are_kept(tmp_path, kind):
  kept = tmp_path / 'quarantine' / 'abc.jsonl'
  with pytest.raises(kind, match='^Too few. The dead letters are in') as caught:
    _refuse(tmp_path, [_LETTER], kind('Too few.'))
  assert str(kept) in str(caught.value)
  assert json.loads(kept.read_text()) == _LETTER._asdict()


@pytest.mark.parametrize(
  ('letters', 'error'),
  [
    ([], errors.DataError('No examples.')),
    ([_LETTER], errors.InfrastructureError('Full.')),
    ([_LETTER], RuntimeError('A bug.')),
  ],
)
def test_nothing_else_is_kept(tmp_path, letters, error):
  with pytest.raises(type(error), match=f'^{error}$'):
    _refuse(tmp_path, letters, error)
  assert not list(tmp_path.iterdir())


def test_published_dead_letters_stay_in_their_version(tmp_path):
  with staging_lib.open_staging(tmp_path) as staging:
    with dead_letters.kept_if_refused(staging, tmp_path, 'abc'):
      dead_letters.write(staging, [_LETTER])
    assert (staging.version / dead_letters.FILE).exists()
  assert not list(tmp_path.iterdir())
