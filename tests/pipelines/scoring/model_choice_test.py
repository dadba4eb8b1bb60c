import pytest

from pipelines.scoring import model_choice
from tff_algos.core import errors, records

_KNOWN = frozenset(('ann', 'bob'))
_ASSIGNMENTS = {'bob': 1, 'cai': 2}


def _choose(client_id, **options):
  return model_choice.choose(
    client_id, model_choice.ScoringConfig(**options), _KNOWN, _ASSIGNMENTS
  )


@pytest.mark.parametrize(
  ('client_id', 'options', 'expected'),
  [
    ('ann', {}, ('personalized', 0, 'client_id')),
    ('bob', {}, ('personalized', 0, 'client_id')),
    ('bob', {'personalized': False}, ('cluster', 1, 'assignment')),
    ('cai', {}, ('cluster', 2, 'assignment')),
    ('dan', {}, ('cluster', -1, 'lowest_loss')),
    ('dan', {'otherwise': 'cluster_3'}, ('cluster', 3, 'default')),
    ('ann', {'personalized': False}, ('cluster', -1, 'lowest_loss')),
    ('cai', {'otherwise': 'refuse'}, ('cluster', 2, 'assignment')),
  ],
)
def test_what_goes_before_what(client_id, options, expected):
  assert _choose(client_id, **options) == expected


def test_refuse_names_the_client():
  with pytest.raises(errors.DataError, match="client 'dan' has no personal"):
    _choose('dan', otherwise='refuse')
  with pytest.raises(errors.DataError) as caught:
    _choose('d' * 10_000, otherwise='refuse')
  assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    ({'split': 'held_out'}, 'split must be'),
    ({'group': 'everybody'}, 'group must be'),
    ({'otherwise': 'best'}, "otherwise must be 'pick', 'refuse' or"),
    ({'otherwise': 'cluster_'}, 'otherwise must be'),
    ({'otherwise': 'cluster_-1'}, 'otherwise must be'),
    ({'otherwise': 'cluster_²'}, 'otherwise must be'),
    ({'max_rows': 0}, 'max_rows must be'),
    ({'split': 'train'}, "pick_split and split are both 'train'"),
  ],
)
def test_bad_config(options, words):
  with pytest.raises(errors.ConfigError, match=words):
    model_choice.ScoringConfig(**options)


def test_assignments(tmp_path):
  path = tmp_path / 'clients.csv'
  path.write_text('client_id,extra,cluster_id\nann,x,1\n"b,""ob",,0\n')
  assert model_choice.read_assignments(path) == {'ann': 1, 'b,"ob': 0}
  path.write_text('\ufeff' + path.read_text())  # As Excel saves it.
  assert model_choice.read_assignments(path) == {'ann': 1, 'b,"ob': 0}


@pytest.mark.parametrize(
  ('content', 'words'),
  [
    (b'client_id,cluster\nann,1\n', 'has no column cluster_id'),
    (b'', 'no column client_id and no cluster_id'),
    (b'client_id,cluster_id\nann,-1\n', "line 2: cluster_id must .* '-1'"),
    (b'client_id,cluster_id\nann\n', "line 2: cluster_id must .* ''"),
    (
      b'client_id,cluster_id\nann,' + b'9' * 5000,
      "line 2: cluster_id must .*9'",
    ),
    (b'cluster_id,client_id\n1\n', 'line 2: the row has no client_id'),
    (b'client_id,cluster_id\nann,1\nann,1\n', "line 3: client 'ann' comes tw"),
    (b'client_id,cluster_id\n\xff,1\n', 'cannot be read'),
    (
      b'cluster_id,client_id\n1,"ann\n1,bob\n',
      'cannot be read: unexpected end',
    ),
  ],
)
def test_bad_assignments(tmp_path, content, words):
  path = tmp_path / 'clients.csv'
  path.write_bytes(content)
  with pytest.raises(errors.DataError, match=words):
    model_choice.read_assignments(path)


def test_changed_table_of_an_evaluation_is_refused(tmp_path):
  path = tmp_path / 'evaluation' / 'clients.csv'
  with records.rewriting(tmp_path, 'evaluation', [path.name]):
    path.write_text('client_id,cluster_id\nann,1\n')
  assert model_choice.read_assignments(path) == {'ann': 1}
  path.write_text('client_id,cluster_id\nann,0\n')
  with pytest.raises(errors.DataError, match=f'{path} is damaged.*evaluate'):
    model_choice.read_assignments(path)


def test_missing_assignments(tmp_path):
  with pytest.raises(errors.DataError, match='cannot be read'):
    model_choice.read_assignments(tmp_path / 'none.csv')
