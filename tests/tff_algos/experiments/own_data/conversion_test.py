import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tff_algos.core import errors
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import config_file, experiment
from tff_algos.experiments.own_data import columns, conversion
from tff_algos.training import workdir


def _clients(num_clients=3, num_examples=10):
  """Returns examples whose features say who and which they are."""
  return {
    f'c{i}': (
      np.stack([np.full(num_examples, i), np.arange(num_examples)], 1) / 1.0,
      np.arange(num_examples) % 2,
    )
    for i in range(num_clients)
  }


def _rows(dataset, client_id, *splits):
  """Returns the features of a client's examples of some splits, sorted."""
  parts = [dataset.examples(client_id, split).x for split in splits]
  rows = np.concatenate(parts)
  return rows[np.argsort(rows[:, -1])]


def test_arrays_of_each_client(tmp_path):
  with conversion.from_arrays(_clients(), tmp_path) as dataset:
    assert dataset.client_ids == ('c0', 'c1', 'c2')
    for i, client_id in enumerate(dataset.client_ids):
      np.testing.assert_array_equal(
        _rows(dataset, client_id, 'train', 'validation', 'test'),
        _clients()[f'c{i}'][0],
      )
    np.testing.assert_array_equal(dataset.num_examples('test'), [3, 3, 3])
    version = dataset.version
  # The same that a workdir opens, and the same config gives it again.
  with dataset_lib.FederatedDataset.open(tmp_path / 'dataset') as again:
    assert again.version == version
  config = experiment.parse(config_file.load(f'{tmp_path}/config.py:fed_soft'))
  assert config.algorithm.name == 'fed_soft'
  assert config.dataset.source.options['folder'] == str(tmp_path / 'raw')


def test_a_call_that_fails_changes_nothing_that_an_earlier_one_wrote(tmp_path):
  conversion.from_arrays(_clients(), tmp_path).close()
  files = [path for path in tmp_path.rglob('*') if path.is_file()]
  written = {path: path.read_bytes() for path in files}
  others = _clients(num_clients=2)
  mixed = {**others, 'c1': (others['c1'][0], others['c1'][1] - 1)}
  for examples, options in ((others, {'sed': 1}), (mixed, {})):
    with pytest.raises(errors.UserError):
      conversion.from_arrays(examples, tmp_path, dataset=options)
    assert {path: path.read_bytes() for path in files} == written
    assert not (tmp_path / '.making').exists()


@pytest.mark.parametrize(
  'dataset',
  [
    {'max_dead_letter_fraction': float('nan')},
    {'seed': np.arange(2)},
    {'a b': 1},
  ],
)
def test_options_that_a_config_cannot_have_are_refused(tmp_path, dataset):
  with pytest.raises(errors.ConfigError, match='cannot be written to a config'):
    conversion.from_arrays(_clients(), tmp_path, dataset=dataset)


@pytest.mark.parametrize('role', ['client', 'label'])
def test_a_role_without_a_column_is_refused(tmp_path, role):
  given = {'client': 'who', 'label': 'ill', role: ''}
  with pytest.raises(errors.DataError, match=f'name the column of the {role}'):
    conversion.from_pandas(_frame(), tmp_path, **given)


@pytest.mark.parametrize('name', ['raw/precious.csv', 'config.py'])
def test_files_of_no_earlier_call_are_not_replaced(tmp_path, name):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  path.write_text('mine')
  with pytest.raises(errors.DataError, match='not as an earlier call wrote it'):
    conversion.from_arrays(_clients(), tmp_path)
  assert path.read_text() == 'mine'


def test_a_config_that_was_edited_is_not_replaced(tmp_path):
  for num_clients in (3, 2):
    conversion.from_arrays(_clients(num_clients), tmp_path).close()
  path = tmp_path / 'config.py'
  edited = path.read_text().replace('num_clients=2', 'num_clients=1')
  path.write_text(edited)
  files = {*tmp_path.rglob('*')}
  with pytest.raises(errors.DataError, match='config.py is there, and not as'):
    conversion.from_arrays(_clients(), tmp_path)
  assert path.read_text() == edited
  assert {*tmp_path.rglob('*')} == files


def test_one_call_at_a_time_writes_to_a_folder(tmp_path):
  with workdir.lock(tmp_path):
    with pytest.raises(errors.WorkdirBusyError, match='is in use by process'):
      conversion.from_arrays(_clients(), tmp_path)
  assert not [*tmp_path.iterdir()]


def test_a_file_in_place_of_the_folder(tmp_path):
  (tmp_path / 'data').write_text('')
  with pytest.raises(errors.DataError, match='is a file'):
    conversion.from_arrays(_clients(), tmp_path / 'data')


def test_targets_of_a_regression_have_a_model(tmp_path):
  examples = {c: (x, y / 4) for c, (x, y) in _clients().items()}
  with conversion.from_arrays(examples, tmp_path) as dataset:
    config = experiment.parse(config_file.load(f'{tmp_path}/config.py'))
    model = experiment.build_algorithm(config, dataset).cluster_model
  assert model.score_name == 'mse'


def test_official_test_split_and_options(tmp_path):
  test = {c: (x[:4] + 100, y[:4]) for c, (x, y) in _clients().items()}
  options = {
    'splits': {'validation_ratio': 0.0},
    'seed': 5,
  }
  with conversion.from_arrays(
    _clients(), tmp_path, test=test, dataset=options
  ) as dataset:
    np.testing.assert_array_equal(dataset.num_examples('train'), [10] * 3)
    np.testing.assert_array_equal(dataset.num_examples('test'), [4] * 3)
    assert dataset.manifest['recipe']['seed'] == 5


def test_clients_with_few_examples_are_left_out_and_counted(tmp_path):
  few = {
    'one': (np.zeros((1, 2)), [0]),
    'four': (np.ones((4, 2)), [0, 1, 0, 1]),
  }
  with conversion.from_arrays({**_clients(), **few}, tmp_path) as dataset:
    assert dataset.client_ids == ('c0', 'c1', 'c2')
    assert dataset.manifest['planted'] == {
      'num_clients_left_out': 2,
      'num_examples_left_out': 5,
    }


def test_classes_by_name_of_arrays_of_objects(tmp_path):
  x = np.zeros((10, 2), np.float32)
  labels = np.array(['walk', 'sit'] * 5, object)
  with conversion.from_arrays({'a': (x, labels)}, tmp_path) as dataset:
    assert dataset.feature_spec.classes == ('sit', 'walk')


@pytest.mark.parametrize(
  ('examples', 'words'),
  [
    ({}, 'there are no clients'),
    (
      [(np.zeros((3, 2)), [0, 1, 0])],
      r'^examples must be a mapping, client id -> \(features, labels\), got li',
    ),
    (
      {'a': (np.zeros((3, 2)), np.zeros(2))},
      "client 'a' has features of shape",
    ),
    ({'a': np.zeros((3, 2))}, "examples of client 'a' must be a pair"),
    (
      {'a': (np.zeros((3, 2)), [0, 1, 0]), 'b': (np.zeros((3, 4)), [0, 1, 0])},
      r'one shape and one kind of dtype, got float64 \(2,\) and float64 \(4,\)',
    ),
    (
      {
        'a': (np.zeros((3, 2), np.uint8), [0, 1, 0]),
        'b': (np.zeros((3, 2), np.uint16), [0, 1, 0]),
      },
      r'one kind of dtype, got uint16 \(2,\) and uint8 \(2,\)',
    ),
    (
      {'a': (np.zeros((3, 2), bool), [0, 1, 0])},
      'the features must be numbers, got bool; convert them',
    ),
    (
      {'a': (np.zeros((3, 2)), [False, True, False])},
      'the labels must be numbers or texts, got bool',
    ),
    (
      {'a': (np.zeros((3, 2)), [0, 1, 0]), 'b': (np.zeros((3, 2)), ['x'] * 3)},
      'the labels of all clients must have',
    ),
    *(
      (
        {'a': (np.zeros((3, 2)), np.array(['x', value, 'y'], object))},
        f'labels are an array of objects, .* got {value!r}; leave out',
      )
      for value in (None, float('nan'), 10)
    ),
    (
      {client: (np.zeros((3, 2)), [0, 1, 0]) for client in (1, '1')},
      "the clients 1 and '1' have one name, '1'",
    ),
  ],
)
def test_arrays_that_do_not_fit_are_one_clear_error(tmp_path, examples, words):
  with pytest.raises(errors.DataError, match=words):
    conversion.from_arrays(examples, tmp_path)


def test_another_form_of_the_test_split_is_told_by_its_name(tmp_path):
  with pytest.raises(errors.DataError, match='^test must be a mapping, .*arra'):
    conversion.from_arrays(_clients(), tmp_path, test=np.zeros(3))


class _ClientData:
  """Stands for a `tff.simulation.datasets.ClientData`."""

  def __init__(self, clients, keys):
    self._clients, self._keys = clients, keys
    self.client_ids = list(clients)

  def create_tf_dataset_for_client(self, client_id):
    elements = self._clients[client_id]
    if self._keys:
      elements = dict(zip(self._keys, elements, strict=True))
    return tf.data.Dataset.from_tensor_slices(elements)


@pytest.mark.parametrize('keys', [(), ('pixels', 'label')])
def test_client_data(tmp_path, keys):
  tested = {name: (x + 100, y) for name, (x, y) in _clients().items()}
  data, test = (_ClientData(one, keys) for one in (_clients(), tested))
  named = dict(zip('xy', keys, strict=False))
  with conversion.from_client_data(
    data, tmp_path, **named, test=test
  ) as dataset:
    np.testing.assert_array_equal(_rows(dataset, 'c1', 'test'), tested['c1'][0])


def test_client_data_without_such_a_key(tmp_path):
  data = _ClientData(_clients(), ('pixels', 'label'))
  with pytest.raises(
    errors.DataError, match="no key ''; set x and y to two of"
  ):
    conversion.from_client_data(data, tmp_path)


def test_client_data_whose_elements_differ_in_length(tmp_path):
  data = _ClientData(_clients(), ())
  data.create_tf_dataset_for_client = lambda _: tf.data.Dataset.from_generator(
    lambda: [([1.0], 0), ([1.0, 2.0], 1)],
    output_signature=(tf.TensorSpec([None]), tf.TensorSpec([], tf.int32)),
  )
  with pytest.raises(errors.DataError, match="client 'c0' must be a pair"):
    conversion.from_client_data(data, tmp_path)


class _Column(list):
  """Stands for a column of a frame."""

  def to_numpy(self):
    return np.array(self, object if isinstance(self[0], str) else None)


class _Frame(dict):
  """Stands for a data frame of pandas."""

  @property
  def columns(self):
    return [*self]


def _frame(num_rows=40):
  return _Frame(
    who=_Column(f'p{i % 2}' for i in range(num_rows)),
    age=_Column(i if i % 7 else float('nan') for i in range(num_rows)),
    city=_Column(('Rome', 'Oslo')[i % 2] for i in range(num_rows)),
    ill=_Column(('no', 'yes')[i // 2 % 2] for i in range(num_rows)),
  )


def test_frame(tmp_path):
  with conversion.from_pandas(
    _frame(), tmp_path, client='who', label='ill', test=_frame(10)
  ) as dataset:
    spec = dataset.feature_spec
    assert [f.name for f in spec.features] == ['age', 'city']
    assert spec.fitted['city']['vocabulary'] == ['Oslo', 'Rome']
    assert spec.classes == ('no', 'yes')
    np.testing.assert_array_equal(dataset.num_examples('test'), [5, 5])
    # Standardized age, Oslo.
    np.testing.assert_array_equal(
      dataset.examples('p1', 'test').x[:, -2:], [[1, 0]] * 5
    )


def test_a_class_spelled_like_a_missing_number_is_one(tmp_path):
  frame = _frame()
  frame['ill'] = _Column(('NA', 'EU', 'AS')[i % 3] for i in range(40))
  with conversion.from_pandas(
    frame, tmp_path, client='who', label='ill'
  ) as dataset:
    assert dataset.feature_spec.classes == ('AS', 'EU', 'NA')
    assert dataset.manifest['recipe']['max_dead_letter_fraction'] == 0


def test_classes_are_those_of_all_rows(tmp_path, monkeypatch):
  monkeypatch.setattr(columns, 'MAX_ROWS', 10)
  frame, test = _frame(), _frame(10)
  frame['ill'] = _Column(('no', 'yes')[i // 20] for i in range(40))
  test['ill'] = _Column(['maybe'] * 10)
  with conversion.from_pandas(
    frame, tmp_path, client='who', label='ill', test=test
  ) as dataset:
    assert dataset.feature_spec.classes == ('maybe', 'no', 'yes')


def test_an_unknown_option_of_a_dataset_is_named(tmp_path):
  with pytest.raises(
    errors.ConfigError, match="key 'sed'. Did you mean \"seed"
  ):
    conversion.from_pandas(
      _frame(), tmp_path, client='who', label='ill', dataset={'sed': 1}
    )


def test_a_number_named_like_a_time_is_a_feature(tmp_path):
  frame = _frame()
  frame['reaction_time'] = _Column(i / 3 for i in range(40))
  with conversion.from_pandas(
    frame, tmp_path, client='who', label='ill'
  ) as dataset:
    names = [feature.name for feature in dataset.feature_spec.features]
    assert names == ['age', 'city', 'reaction_time']


def test_frames_split_by_time_have_an_official_test_split(tmp_path):
  frame, test = _frame(), _frame(10)
  frame['dose'] = frame['day'] = _Column(range(40))
  test['dose'] = _Column(range(100, 110))
  test['day'] = _Column(range(10))
  with conversion.from_pandas(
    frame,
    tmp_path,
    client='who',
    label='ill',
    time='day',
    features=[{'name': 'dose'}],
    test=test,
    dataset={'splits': {'validation_ratio': 1.0}},
  ) as dataset:
    assert dataset.manifest['recipe']['splits']['split_by'] == 'client_time'
    np.testing.assert_array_equal(dataset.num_examples('test'), [5, 5])
    train, validation = (
      dataset.examples('p0', split).x[:, 0] for split in ('train', 'validation')
    )
    assert (len(train), len(validation)) == (10, 10)
    assert train.max() < validation.min()


def test_columns_that_are_spelled_alike_are_refused(tmp_path):
  frame = _frame()
  frame[1] = frame['1'] = _Column(range(40))
  with pytest.raises(errors.DataError, match="the columns 1 and '1' have one"):
    conversion.from_pandas(frame, tmp_path, client='who', label='ill')


def test_frame_without_such_a_column(tmp_path):
  with pytest.raises(errors.DataError, match="no column 'user' for the client"):
    conversion.from_pandas(_frame(), tmp_path, client='user', label='ill')


@pytest.mark.parametrize('of', [list, np.array])
def test_features_that_are_names_alone(tmp_path, of):
  with pytest.raises(errors.DataError, match="{'name': 'age'} .* got .*'city'"):
    conversion.from_pandas(
      _frame(), tmp_path, client='who', label='ill', features=of(['city', 'x'])
    )


@pytest.mark.parametrize(
  'values', [['a', 1, 2.5, b'x'], [2**70, 2**71, 2**72, 2**73]]
)
def test_column_of_several_types_or_of_too_large_integers(tmp_path, values):
  frame = _frame(4)
  frame['odd'] = _Column(values)
  with pytest.raises(errors.DataError, match="column 'odd' cannot be written"):
    conversion.from_pandas(frame, tmp_path, client='who', label='ill')


class _ClassLabel:
  def __init__(self, names):
    self.names = names


class _Dataset:
  """Stands for a `datasets.Dataset` of images."""

  column_names = ('image', 'label', 'writer')

  def __init__(self, num_rows, labels=(0, 1), names=('cat', 'dog', 'eel')):
    self._num_rows, self._labels = num_rows, labels
    self.features = {'label': _ClassLabel([*names]) if names else object()}

  def __getitem__(self, name):
    rows = range(self._num_rows)
    return {
      'image': [Image.new('L', (4, 4), color=i) for i in rows],
      'label': [self._labels[i % 2] for i in rows],
      'writer': [f'w{i % 2}' for i in rows],
    }[name]


@pytest.mark.parametrize(
  'test',
  [
    _Dataset(4),
    _Dataset(4, labels=(2, 0), names=('dog', 'eel', 'cat')),
    _Dataset(4, labels=('cat', 'dog'), names=()),
    _Dataset(4, names=()),
  ],
)
def test_dataset_of_images_and_class_labels(tmp_path, test):
  features = [{'name': 'image', 'type': 'image', 'shape': (4, 4, 1)}]
  with conversion.from_huggingface(
    {'train': _Dataset(20), 'test': test},
    tmp_path,
    client='writer',
    label='label',
    features=features,
  ) as dataset:
    assert dataset.feature_spec.classes == ('cat', 'dog', 'eel')
    found = dataset.examples('w1', 'test')
    np.testing.assert_allclose(sorted(found.x[:, 0, 0, 0] * 255), [1, 3])
    np.testing.assert_array_equal(found.y, [1, 1])


def test_a_label_beyond_the_classes_is_refused(tmp_path):
  with pytest.raises(
    errors.DataError, match='a label is 3, .* only the 3 classes cat, dog, eel'
  ):
    conversion.from_huggingface(
      _Dataset(4, labels=(0, 3)), tmp_path, client='writer', label='label'
    )


def test_bytes_of_images_are_taken_as_they_are():
  content = io.BytesIO()
  Image.new('L', (4, 4)).save(content, format='PNG')
  value = {'bytes': content.getvalue(), 'path': None}
  assert conversion._image_bytes(value, 'x', 0) == content.getvalue()


def test_images_of_modes_that_png_does_not_have():
  printed = Image.new('CMYK', (1, 1), color=(0, 255, 255, 0))
  content = conversion._image_bytes(printed, 'x', 0)
  assert Image.open(io.BytesIO(content)).getpixel((0, 0)) == (255, 0, 0)
  # Of 16 or 32 bits, of which a decoder would take the highest 8.
  for mode in ('F', 'I', 'I;16'):
    with pytest.raises(
      errors.DataError, match="column 'x', row 7: the image can"
    ):
      conversion._image_bytes(Image.new(mode, (1, 1)), 'x', 7)


def test_splits_without_train(tmp_path):
  with pytest.raises(errors.DataError, match="must have 'train', got test"):
    conversion.from_huggingface(
      {'test': _Dataset(4)}, tmp_path, client='writer', label='label'
    )
