import sqlite3

import pytest

from pipelines.sources import base, client_database
from tests.testing import raw_sources
from tff_algos.core import errors


class _Labels(client_database.ClientDatabase):
  """Yields each example's label alone, and twice where it is above 90."""

  def _examples(self, features):
    (label,) = features['label'].int64_list.value
    for _ in range(1 + (label > 90)):
      yield base.RawExample(x=None, y=label)


_CLIENTS = {
  "o'hara; DROP TABLE examples": {'train': [3, 95, 4], 'test': [5]},
  'a/b "c"': {'train': [1, 2], 'test': []},
  'мария': {'train': [6], 'test': [7, 8]},
  'tester': {'test': [9]},
}


def _source(folder, clients=_CLIENTS, **more):
  path = folder / 'clients.sqlite'
  raw_sources.write_database(
    path,
    {
      client: {
        split: [raw_sources.image_record(0, label) for label in labels]
        for split, labels in splits.items()
      }
      for client, splits in clients.items()
    },
  )
  options = client_database.Options(str(folder), 'clients.sqlite', **more)
  return _Labels(options, 0)


def _read(source):
  return [
    (e.client, e.y, e.is_test)
    for block in source.blocks()
    for e in source.read(block)
  ]


def test_clients_in_order_with_their_splits(tmp_path):
  client = "o'hara; DROP TABLE examples"
  assert _read(_source(tmp_path)) == [
    ('a/b "c"', 1, False),
    ('a/b "c"', 2, False),
    *((client, y, False) for y in (3, 95, 95, 4)),
    ('мария', 6, False),
    (client, 5, True),
    ('мария', 7, True),
    ('мария', 8, True),
  ]


def test_any_block_of_records(tmp_path):
  source = _source(tmp_path)
  examples = source.read(base.Block('train', 1, 4))
  assert [e.y for e in examples] == [2, 3, 95, 95]


@pytest.mark.parametrize(
  ('more', 'clients'),
  [
    ({'min_train': 2}, {'a/b "c"', "o'hara; DROP TABLE examples"}),
    ({'min_test': 1}, {'мария', "o'hara; DROP TABLE examples"}),
    ({'min_test': 1, 'min_train': 2}, {"o'hara; DROP TABLE examples"}),
    ({'min_train': 0}, {*_CLIENTS}),
  ],
)
def test_clients_with_enough(tmp_path, more, clients):
  """PPFL: by the counts of train and test."""
  assert {
    client for client, _, _ in _read(_source(tmp_path, **more))
  } == clients


def test_draw_of_clients(tmp_path):
  """PPFL: some clients by seed, the same every time."""
  clients = {f'c{i:03}': {'train': [i % 90]} for i in range(100)}
  drawn = [
    {
      client
      for client, _, _ in _read(
        _source(folder, clients, num_clients=10, draw_seed=seed)
      )
    }
    for folder, seed in (
      (tmp_path / 'a', 1),
      (tmp_path / 'b', 1),
      (tmp_path / 'c', 2),
    )
    if not folder.mkdir()
  ]
  assert len(drawn[0]) == 10
  assert drawn[0] == drawn[1] != drawn[2]


def test_too_few_clients_to_draw(tmp_path):
  source = _source(tmp_path, num_clients=4)
  with pytest.raises(errors.DataError, match='3 clients .* num_clients is 4'):
    source.blocks()


def test_without_the_test_split(tmp_path):
  source = _source(tmp_path, use_test=False)
  assert not source.has_test_split()
  assert not any(is_test for _, _, is_test in _read(source))


def _alter(folder, *statements):
  database = sqlite3.connect(folder / 'clients.sqlite')
  for statement in statements:
    database.execute(statement)
  database.commit()
  database.close()


@pytest.mark.parametrize(
  ('statement', 'text'),
  [
    (
      "INSERT INTO client_metadata VALUES ('мария', 'train', 1)",
      "client 'мария' twice in the split 'train'",
    ),
    (
      "UPDATE client_metadata SET num_examples = 'many'",
      "has 'many' examples",
    ),
    ('UPDATE client_metadata SET num_examples = -1', 'has -1 examples'),
    (
      'UPDATE client_metadata SET num_examples = 1 << 60',
      'speaks of more examples than there are',
    ),
    ('DROP TABLE client_metadata', 'no such table'),
  ],
)
def test_metadata_that_cannot_be(tmp_path, statement, text):
  source = _source(tmp_path)
  _alter(tmp_path, statement)
  with pytest.raises(errors.DataError, match=text):
    source.blocks()


def test_client_with_less_than_it_says(tmp_path):
  source = _source(tmp_path)
  _alter(
    tmp_path,
    "UPDATE client_metadata SET num_examples = 2 WHERE client_id = 'мария'",
    "UPDATE client_metadata SET num_examples = 0 WHERE client_id = 'tester'",
  )
  with pytest.raises(errors.DataError, match="'мария' has fewer examples"):
    _read(source)


def test_client_with_more_than_it_says(tmp_path):
  """Of one whose last record is not in its first block."""
  source = _source(tmp_path)
  _alter(
    tmp_path,
    "UPDATE client_metadata SET num_examples = 2 WHERE client_id LIKE 'o%'",
  )
  assert [*source.read(base.Block('train', 0, 3))]
  with pytest.raises(errors.DataError, match='TABLE examples" has more exampl'):
    _read(source)


def test_record_that_is_no_example_is_a_problem(tmp_path):
  source = _source(tmp_path)
  _alter(
    tmp_path,
    "UPDATE examples SET serialized_example_proto = X'ff' WHERE rowid <= 2",
    "UPDATE examples SET serialized_example_proto = 'text' WHERE rowid = 3",
  )
  (block, _) = source.blocks()
  problems = [e.problem and e.problem.reason for e in source.read(block)]
  assert problems.count('the record is no tf.train.Example') == 3


@pytest.mark.parametrize('content', [b'', b'SQLite format 3', b'x' * 5000])
def test_file_that_is_no_database(tmp_path, content):
  source = _source(tmp_path)
  (tmp_path / 'clients.sqlite').write_bytes(content)
  with pytest.raises(errors.DataError, match='no sound SQLite database'):
    source.blocks()


def test_nothing_is_written(tmp_path):
  source = _source(tmp_path)
  before = source.checksums()
  _read(source)
  assert [path.name for path in tmp_path.iterdir()] == ['clients.sqlite']
  assert source.checksums() == before


@pytest.mark.parametrize(
  'more',
  [{'min_train': -1}, {'min_test': -1}, {'num_clients': 0}, {'draw_seed': -1}],
)
def test_bad_options(more):
  with pytest.raises(errors.ConfigError, match=next(iter(more))):
    client_database.Options('x', 'y', **more)
