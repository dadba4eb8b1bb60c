import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.testing import raw_sources
from tff_algos.core import errors
from tff_algos.experiments.own_data import columns, proposal


def _table(folder, names, rows):
  """Returns the path of a CSV file, and a look at it."""
  path = folder / 't.csv'
  lines = [','.join(map(str, row)) for row in (names, *rows)]
  path.write_text('\n'.join(lines))
  return str(path), columns.read(path)


def _visits(folder):
  """Returns a table with every kind of column; 30 rows of 3 persons."""
  names = ('visit', 'person', 'time', 'age', 'city', 'note', 'ill')
  rows = [
    (
      *(f'v{i}', f'p{i % 3}', f'2026-11-{i % 28 + 1:02}', i if i % 9 else ''),
      *('Rome' if i % 2 else 'Oslo', f'this was visit {i}'),
      'yes' if i % 5 else 'no',
    )
    for i in range(30)
  ]
  return _table(folder, names, rows)


def _options(found):
  return {option.key: option.value for option in found.options}


def test_roles_and_types_are_guessed(tmp_path):
  path, table = _visits(tmp_path)
  found = proposal.of_table(path, table, {'label': 'ill'})
  assert _options(found) == {
    'path': path,
    'client_column': 'person',
    'label_column': 'ill',
    'classes': ('no', 'yes'),
    'time_column': 'time',
    'features': (
      {'name': 'age', 'missing': 'mean'},
      {'name': 'city', 'type': 'category'},
      {'name': 'note', 'type': 'text'},
    ),
  }
  assert found.num_clients == 3
  assert found.dataset == {'splits': {'split_by': 'client_time'}}
  assert found.notes[:2] == (
    '30 rows.',
    'visit is left out: 30 different values, an id or a name.',
  )


@pytest.mark.parametrize('column', [0, 1])
def test_a_client_or_class_in_two_spellings_is_refused(tmp_path, column):
  rows = [[i % 3, i % 2, i / 7] for i in range(60)]
  path, table = _table(tmp_path, ('who', 'y', 'v'), rows)
  assert proposal.of_table(path, table, {'client': 'who', 'label': 'y'})
  for row in rows[30:]:
    row[column] = float(row[column])
  path, table = _table(tmp_path, ('who', 'y', 'v'), rows)
  words = rf"has \d and \d\.0 in the column '{('who', 'y')[column]}'"
  with pytest.raises(errors.DataError, match=words):
    proposal.of_table(path, table, {'client': 'who', 'label': 'y'})


def test_a_column_without_a_name_is_left_out_and_said_to_be(tmp_path):
  rows = [(i, f'p{i % 3}', i / 7, i % 2) for i in range(30)]
  path, table = _table(tmp_path, ('', 'person', 'age', 'ill'), rows)
  found = proposal.of_table(path, table, {})
  assert _options(found)['features'] == ({'name': 'age'},)
  assert 'Column 1 is left out: it has no name.' in found.notes


def test_two_columns_of_one_name_are_refused(tmp_path):
  rows = [(f'p{i % 3}', i / 7, i / 9, i % 2) for i in range(30)]
  path, table = _table(tmp_path, ('person', 'age', 'age', 'ill'), rows)
  with pytest.raises(errors.DataError, match="two columns 'age', 2 and 3 of 4"):
    proposal.of_table(path, table, {})


def test_evidence_stands_beside_the_options(tmp_path):
  found = proposal.of_table(*_visits(tmp_path), {})
  evidence = {option.key: option.evidence for option in found.options}
  assert evidence['client_column'] == (
    "person: 3 texts, such as 'p0', 'p1', 'p2'; 3 clients with 10 rows each",
    "Others that it could be: 'city', 'ill'",
  )
  # The last column, for want of a name; the classes are those of its texts.
  assert evidence['label_column'][1] == (
    'No column is named like a label: is it this one?'
  )
  assert evidence['features'][0] == (
    'age: whole numbers from 1 to 29; 4 missing'
  )


def test_given_columns_come_before_guesses(tmp_path):
  path, table = _visits(tmp_path)
  given = {'client': 'city', 'label': 'age', 'time': ''}
  found = proposal.of_table(
    path, table, given, features=[{'name': 'note', 'type': 'text'}]
  )
  options = _options(found)
  assert (options['client_column'], options['label_column']) == ('city', 'age')
  assert 'classes' not in options  # A regression: more than 20 values.
  assert options['features'] == ({'name': 'note', 'type': 'text'},)
  assert 'Regression. Targets from 1 to 29' in found.notes[1]
  assert found.model == 'mlp'
  images = [{'name': 'note', 'type': 'image', 'shape': (8, 8, 1)}]
  assert proposal.of_table(path, table, given, images).model == 'mlp'
  # Four rows have no label: twice as many may be left out, in percents.
  assert found.dataset['max_dead_letter_fraction'] == 0.27


def test_no_time_is_guessed_if_none_is_wanted(tmp_path):
  rows = [(f'p{i % 2}', i / 7, i % 2) for i in range(20)]
  path, table = _table(tmp_path, ('who', 'time', 'ill'), rows)
  features = [{'name': 'time'}]
  guessed = proposal.of_table(path, table, {'time': None}, features)
  assert _options(guessed)['time_column'] == 'time'
  with pytest.raises(errors.DataError, match='feature. Each is the client, '):
    proposal.of_table(path, table, {})
  found = proposal.of_table(path, table, {'time': ''})
  assert 'time_column' not in _options(found)
  assert _options(found)['features'] == ({'name': 'time'},)
  assert found.dataset == {}


@pytest.mark.parametrize(
  ('name', 'first', 'is_time'),
  [
    ('response_time', 0, False),
    ('Timestamp', 0, True),
    ('visit_date', '2026-11-', True),
  ],
)
def test_a_number_is_a_time_by_its_whole_name(tmp_path, name, first, is_time):
  times = [f'{first}{7 * i % 19 + 10}' for i in range(20)]
  rows = [(f'p{i % 2}', one, i / 7, i % 2) for i, one in enumerate(times)]
  path, table = _table(tmp_path, ('who', name, 'a', 'ill'), rows)
  options = _options(proposal.of_table(path, table, {'label': 'ill'}))
  assert options.get('time_column') == (name if is_time else None)
  assert ({'name': name} in options['features']) == (not is_time)


def test_texts_among_labels_that_are_numbers_are_no_classes(tmp_path):
  odd = {3: 'unknown', 4: '-', 5: 'inf'}
  rows = [(f'p{i % 2}', i / 7, odd.get(i, i % 20)) for i in range(100)]
  path, table = _table(tmp_path, ('who', 'a', 'ill'), rows)
  found = proposal.of_table(path, table, {'label': 'ill'})
  assert _options(found)['classes'] == tuple(map(str, range(20)))
  # The three rows are dead letters; twice as many may be left out.
  assert found.dataset['max_dead_letter_fraction'] == 0.06
  assert "rarest class, '3', has 4 rows" in found.notes[-1]


def test_rows_of_a_client_that_counts_as_missing_are_noted(tmp_path):
  rows = [(('NA', 'ZA', 'BW')[i % 3], i / 7, i % 2) for i in range(30)]
  path, table = _table(tmp_path, ('who', 'a', 'ill'), rows)
  found = proposal.of_table(path, table, {'label': 'ill'})
  assert found.num_clients == 2
  assert found.dataset['max_dead_letter_fraction'] == 0.67
  assert "client 'NA' are left out" in found.notes[-1]


@pytest.mark.parametrize('classes', [('no', 'yes'), None])
def test_label_without_values_is_noted(tmp_path, classes):
  rows = [(f'p{i % 2}', i / 7, '') for i in range(20)]
  path, table = _table(tmp_path, ('who', 'a', 'ill'), rows)
  found = proposal.of_table(path, table, {'label': 'ill'}, classes=classes)
  assert found.notes[-1] == 'No row has a label.'


def test_most_rows_without_a_label_are_no_option_that_is_refused(tmp_path):
  rows = [(f'p{i % 2}', i / 7, '' if i % 3 else i % 2) for i in range(60)]
  path, table = _table(tmp_path, ('person', 'a', 'ill'), rows)
  found = proposal.of_table(path, table, {'label': 'ill'})
  assert found.dataset['max_dead_letter_fraction'] == 0.99


def test_whole_numbers_are_classes_in_their_order(tmp_path):
  rows = [(i % 2, i / 7, i % 11) for i in range(44)]
  path, table = _table(tmp_path, ('user_id', 'a', 'stars'), rows)
  options = _options(proposal.of_table(path, table, {}))
  assert options['classes'] == tuple(map(str, range(11)))
  assert options['client_column'] == 'user_id'


def test_a_number_that_counts_the_rows_is_left_out(tmp_path):
  rows = [(7 + i, f'p{i % 2}', i % 29, (i % 4) / 2) for i in range(30)]
  names = ('visit', 'person', 'age', 'dose')
  found = proposal.of_table(*_table(tmp_path, names, rows), {'label': 'dose'})
  assert _options(found)['features'] == ({'name': 'age'},)
  assert found.notes[1] == 'visit is left out: it counts the rows.'


def test_number_of_texts_is_evidence_of_a_category(tmp_path):
  rows = [(f'p{i % 2}', f'came again at {i % 3}', i / 7) for i in range(40)]
  table = _table(tmp_path, ('person', 'note', 'y'), rows)
  (*_, features) = proposal.of_table(*table, {}).options
  assert features.value == ({'name': 'note', 'type': 'category'},)
  assert features.evidence == ('note: 3 texts of 4 words',)


def test_unusual_form_of_a_csv_file(tmp_path):
  path = tmp_path / 't.csv'
  path.write_text('\n'.join(f'u{i % 2};{i / 7};{i % 2}' for i in range(1, 12)))
  options = _options(proposal.of_table(str(path), columns.read(path), {}))
  assert options['delimiter'] == ';'
  assert options['column_names'] == ('column_0', 'column_1', 'column_2')


def _no_client(folder):
  rows = [(i / 7, i / 9, i % 2 / 3) for i in range(20)]
  return proposal.of_table(*_table(folder, ('a', 'b', 'c'), rows), {})


def _no_label(folder):
  rows = [(f'p{i % 2}', 7) for i in range(20)]
  return proposal.of_table(*_table(folder, ('a', 'b'), rows), {})


def _no_feature(folder):
  rows = [(f'p{i % 2}', i % 3) for i in range(20)]
  return proposal.of_table(*_table(folder, ('who', 'b'), rows), {})


def _no_column(folder):
  return proposal.of_table(*_visits(folder), {'client': 'user'})


def _no_feature_of_that_name(folder):
  features = [{'name': 'age'}, {'name': 'typo'}]
  return proposal.of_table(*_visits(folder), {'label': 'ill'}, features)


def _twice(folder):
  given = {'client': 'city', 'label': 'city'}
  return proposal.of_table(*_visits(folder), given)


def _one_class(folder):
  rows = [(f'p{i % 2}', i / 3, 'yes') for i in range(20)]
  table = _table(folder, ('who', 'a', 'ill'), rows)
  return proposal.of_table(*table, {'label': 'ill'})


@pytest.mark.parametrize(
  ('propose', 'words'),
  [
    (_one_class, "has one class alone in the label column 'ill', 'yes'"),
    (_no_client, 'no column that can be a client'),
    (_no_label, 'no column that can be a label'),
    (_no_feature, 'no column that can be a feature'),
    (_no_column, "no column 'user' for the client; its columns are: visit, "),
    (_no_feature_of_that_name, "no column 'typo' for the feature; its columns"),
    (_twice, 'must be different columns'),
  ],
)
def test_unsuitable_table_is_one_clear_error(tmp_path, propose, words):
  with pytest.raises(errors.DataError, match=words):
    propose(tmp_path)


def test_images(tmp_path):
  raw_sources.write_images(tmp_path)
  found = proposal.of_images(str(tmp_path))
  # 8 x 6 pixels are less than the models take.
  assert _options(found)['shape'] == (16, 16, 3)
  assert _options(found)['classes'] == ('cat', 'dat')
  assert found.num_clients == 1  # At least; of 3 images none is kept.
  assert found.options[1].evidence == (
    'Of 6 images that were opened, the median is 8 x 6; the largest has 144 values',
  )


def test_large_grey_images_keep_their_ratio(tmp_path):
  for label in 'ab':
    (tmp_path / 'ann' / label).mkdir(parents=True)
    raw_sources.write_jpeg(tmp_path / 'ann' / label / '0.jpg', 9, (100, 160, 1))
  (tmp_path / 'ann' / 'b' / '1.jpg').write_text('no image')
  found = proposal.of_images(str(tmp_path))
  assert _options(found)['shape'] == (40, 64, 1)


def test_folders_of_splits_are_no_clients(tmp_path):
  for folder in ('Train/cat', 'Train/dog', 'test/cat'):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / '0.png').touch()
  with pytest.raises(errors.DataError, match='folders Train, test in the pla'):
    proposal.of_images(str(tmp_path))


def test_folder_without_images(tmp_path):
  for label in 'ab':
    (tmp_path / 'ann' / label).mkdir(parents=True)
    (tmp_path / 'ann' / label / '0.txt').write_text('no image')
  with pytest.raises(errors.DataError, match='none of 2 files is a PNG'):
    proposal.of_images(str(tmp_path))


@pytest.mark.parametrize(
  ('x', 'model'),
  [
    (np.zeros((6, 16, 16, 1), np.uint8), 'small_cnn'),
    (np.zeros((6, 8, 8, 1), np.uint8), 'mlp'),
    (np.zeros((6, 5), np.int64), 'word_lstm'),
    (np.zeros((6, 5)), 'mlp'),
  ],
)
def test_model_of_arrays(tmp_path, x, model):
  raw_sources.write_arrays(tmp_path)
  np.save(tmp_path / 'x.npy', x)
  found = proposal.of_arrays(str(tmp_path))
  assert found.model == model
  assert found.dataset == {'splits': proposal.OFFICIAL_TEST}


def test_ids_of_words_without_words(tmp_path):
  raw_sources.write_arrays(tmp_path)
  np.save(tmp_path / 'x.npy', np.zeros((6, 5), np.int64))
  (note,) = proposal.of_arrays(str(tmp_path)).notes
  assert note.endswith('If they are quantities, write floats.')
  np.save(tmp_path / 'y.npy', np.arange(30).reshape(6, 5) % 3)
  found = proposal.of_arrays(str(tmp_path))
  assert (found.model, found.notes) == ('transformer', ())
  # Classes that are no ids, such as parts of speech.
  np.save(tmp_path / 'x.npy', np.full((6, 5), 9))
  assert proposal.of_arrays(str(tmp_path)).model == 'word_lstm'


def test_clients_that_the_config_leaves_out_do_not_count(tmp_path):
  sizes = {'a': 6, 'b': 5, 'c': 4, 'd': 1}
  names = np.repeat([*sizes], [*sizes.values()])
  rows = [(name, i / 7, i % 3 % 2) for i, name in enumerate(names)]
  table = _table(tmp_path, ('person', 'v', 'ill'), rows)
  given = {'client': 'person', 'label': 'ill'}
  assert proposal.of_table(*table, given).num_clients == 2
  np.save(tmp_path / 'x.npy', np.zeros((16, 2)))
  np.save(tmp_path / 'y.npy', np.arange(16) % 2)
  np.save(tmp_path / 'client.npy', names)
  assert proposal.of_arrays(str(tmp_path)).num_clients == 2


def test_decimal_commas_are_no_texts(tmp_path):
  path = tmp_path / 't.csv'
  path.write_text(
    'who;temp;ill\n'
    + ''.join(f'p{i % 2};{36 + i % 3},{i};{i % 2}\n' for i in range(20))
  )
  words = r"decimal commas in the column 'temp', such as 36,0,.* with points"
  with pytest.raises(errors.DataError, match=words):
    proposal.of_table(str(path), columns.read(path), {})


def test_an_image_or_windows_of_one_length_are_alone(tmp_path):
  rows = {
    'who': [f'p{i % 2}' for i in range(20)],
    'short': [[i / 7, i / 3] for i in range(20)],
    'long': [[i / 7, i / 3, 1.0] for i in range(20)],
    'short_too': [[i / 7, i / 3] for i in range(20)],
    'front': [b'\x89PNG' + bytes([i]) for i in range(20)],
    'back': [b'\x89PNG' + bytes([i]) for i in range(20)],
    'ill': [i % 3 % 2 for i in range(20)],
  }
  path = tmp_path / 't.parquet'

  def features(*left_out):
    kept = {name: rows[name] for name in rows if name not in left_out}
    parquet.write_table(pyarrow.table(kept), path)
    found = _options(proposal.of_table(str(path), columns.read(path), {}))
    return [feature['name'] for feature in found['features']]

  assert features() == ['front']
  assert features('front', 'back') == ['short', 'short_too']


def test_windows_without_values_are_dead_letters(tmp_path):
  window = [None, *([1.0, 2.0, i / 7] for i in range(1, 50))]
  rows = {
    'who': [f'p{i % 2}' for i in range(50)],
    'window': window,
    'ill': [i % 3 % 2 for i in range(50)],
  }
  path = tmp_path / 't.parquet'
  parquet.write_table(pyarrow.table(rows), path)
  found = proposal.of_table(str(path), columns.read(path), {})
  assert found.dataset['max_dead_letter_fraction'] == 0.04
