"""Federated datasets of arrays, frames and datasets that are in memory.

Each function writes the raw data to `<folder>/raw`, a config file that reads
them to `<folder>/config.py`, and the dataset of that config to
`<folder>/dataset`. So the folder is the workdir of an experiment:
`python -m binaries.train --config=<folder>/config.py --workdir=<folder>`. What
an earlier call wrote there is replaced when data and config are complete; a
config that was edited, and other files of these names, are refused.
"""

import ast
import hashlib
import io
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from tff_algos.core import durable, errors
from tff_algos.core.structures import Array
from tff_algos.data import dataset as dataset_lib
from tff_algos.experiments import config_file, datasets, experiment
from tff_algos.experiments.own_data import columns, config_text
from tff_algos.experiments.own_data import proposal as proposal_lib
from tff_algos.training import workdir

CONFIG = 'config.py'
_RAW = 'raw'
_TRAIN = 'train.parquet'
_TEST = 'test.parquet'
# Where raw data and config are until they are complete.
_MAKING = '.making'
# Last line of a config file, before the SHA-256 of all above: shows an edit.
_SEAL = '\n# As written: '

# The kinds of dtype of arrays, see `numpy.dtype.kind`, in words.
_KINDS = {
  'features': ('iuf', 'numbers'),
  'labels': ('iufU', 'numbers or texts'),
}

# Modes of Pillow that a PNG file does not have, but RGB stands for.
_PRINTED = ('CMYK', 'YCbCr', 'HSV')

Examples = Mapping[str, tuple[Any, Any]]


def from_arrays(
  examples: Examples,
  folder: str | os.PathLike[str],
  *,
  test: Examples | None = None,
  dataset: Mapping[str, Any] | None = None,
) -> dataset_lib.FederatedDataset:
  """Returns the dataset of clients whose examples are arrays.

  >>> import tempfile
  >>> import numpy as np
  >>> import tff_algos
  >>> x, y = np.random.default_rng(0).random((40, 3)), np.arange(40) % 2
  >>> examples = {'ann': (x[:20], y[:20]), 'bob': (x[20:], y[20:])}
  >>> with tff_algos.from_arrays(examples, tempfile.mkdtemp()) as dataset:
  ...   print(dataset.client_ids, dataset.schema.num_classes)
  ('ann', 'bob') 2

  Args:
    examples: Client id -> features `[n, ...]` and labels `[n]`. The dtypes of
      all clients say what they mean: uint8 features are pixels, read as 0 to 1;
      other integers ids of tokens, not quantities; floats numbers. Integer
      labels from 0 and texts are classes; floats are targets of a regression.
    folder: Folder to write to, made if it is missing.
    test: The same, of an official test split; a client's are its test examples.
    dataset: Options of `config.dataset` to set, such as
      `{'splits': {'test_ratio': 0.5}, 'seed': 1}`; see `configs/own_data.py`
      for the others.

  Raises:
    DataError: If the arrays do not fit each other.
    UserError: If the dataset cannot be built.
  """
  parts = [(examples, False), ({} if test is None else test, True)]
  for part, is_test in parts:
    if not isinstance(part, Mapping):
      raise errors.DataError(
        f'{"test" if is_test else "examples"} must be a mapping, client id -> '
        f'(features, labels), got {type(part).__name__}'
      )
    _check_distinct(part, 'clients')
  listed = [
    (str(client), *_pair(str(client), pair), is_test)
    for part, is_test in parts
    for client, pair in part.items()
  ]
  if not listed:
    raise errors.DataError('there are no clients; give at least one')
  arrays = {
    'x': _join('features', [x for _, x, _, _ in listed]),
    'y': _join('labels', [y for _, _, y, _ in listed]),
    'client': np.repeat(
      [client for client, *_ in listed], [len(y) for _, _, y, _ in listed]
    ),
  }
  if test is not None:
    arrays['is_test'] = np.repeat(
      [is_test for *_, is_test in listed], [len(y) for _, _, y, _ in listed]
    )

  def write(raw: pathlib.Path, place: pathlib.Path) -> proposal_lib.Proposal:
    for name, array in arrays.items():
      np.save(raw / f'{name}.npy', array)
    return proposal_lib.of_arrays(str(raw), str(place))

  return _build(write, 'from_arrays', folder, dataset)


def from_client_data(
  client_data: Any,
  folder: str | os.PathLike[str],
  *,
  x: str = '',
  y: str = '',
  test: Any = None,
  dataset: Mapping[str, Any] | None = None,
) -> dataset_lib.FederatedDataset:
  """Returns the dataset of a `tff.simulation.datasets.ClientData`.

  All examples are in memory meanwhile.

  Args:
    client_data: It has `client_ids` and `create_tf_dataset_for_client`.
    folder: See `from_arrays`.
    x: Key of the features; '' if the elements are pairs (x, y).
    y: Key of the labels.
    test: Another one, of the official test split.
    dataset: See `from_arrays`.

  Raises:
    DataError: If an element has no such key, or a client's elements are not of
      one shape.
    UserError: See `from_arrays`.
  """

  def read(one: Any) -> dict[str, tuple[Any, Any]]:
    return {
      # Now: as a list of small arrays it takes several times the memory.
      client: _pair(
        client, _elements(one.create_tf_dataset_for_client(client), x, y)
      )
      for client in one.client_ids
    }

  return from_arrays(
    read(client_data),
    folder,
    test=None if test is None else read(test),
    dataset=dataset,
  )


def from_pandas(
  frame: Any,
  folder: str | os.PathLike[str],
  *,
  client: str,
  label: str,
  time: str = '',
  features: Sequence[Mapping[str, Any]] | None = None,
  classes: Sequence[str] | None = None,
  test: Any = None,
  dataset: Mapping[str, Any] | None = None,
) -> dataset_lib.FederatedDataset:
  """Returns the dataset of a data frame, a row an example.

  Args:
    frame: A frame of pandas, or another one with `columns` and columns with
      `to_numpy()`.
    folder: See `from_arrays`.
    client: Column with the client of a row.
    label: Column of the labels.
    time: Column with the time of a row, by which each client's examples are
      split; '' to draw them.
    features: Features, such as `{'name': 'note', 'type': 'text'}`, with the
      fields of `features.spec.Feature`; None to guess them.
    classes: Spellings of the labels, class 0 first; None for the different
      texts of all rows or, of numbers with few integer values, for those; `()`
      for a regression.
    test: A frame of the official test split.
    dataset: See `from_arrays`.

  Raises:
    DataError: If a column is missing or of an unknown type, or two are spelled
      alike.
    UserError: See `from_arrays`.
  """
  frames = {_TRAIN: frame} | ({} if test is None else {_TEST: test})
  for one in frames.values():
    _check_distinct(one.columns, 'columns')
  tables = {
    name: {str(key): one[key].to_numpy() for key in one.columns}
    for name, one in frames.items()
  }
  given = {'client': client, 'label': label, 'time': time}
  return _build_table(
    tables, 'from_pandas', folder, given, features, classes, dataset
  )


def from_huggingface(
  data: Any,
  folder: str | os.PathLike[str],
  *,
  client: str,
  label: str,
  time: str = '',
  features: Sequence[Mapping[str, Any]] | None = None,
  dataset: Mapping[str, Any] | None = None,
) -> dataset_lib.FederatedDataset:
  """Returns the dataset of a `Dataset` of Hugging Face.

  Args:
    data: A `datasets.Dataset`, or a mapping of its splits with `'train'` and,
      as the official test split, `'test'`.
    folder: See `from_arrays`.
    client: Column with the client of an example.
    label: Column of the labels; a `ClassLabel` is spelled by its names.
    time: See `from_pandas`.
    features: See `from_pandas`.
    dataset: See `from_arrays`.

  Raises:
    DataError: If a column is missing or of an unknown type.
    UserError: See `from_arrays`.
  """
  parts = {_TRAIN: data}
  if isinstance(data, Mapping):
    if 'train' not in data:
      raise errors.DataError(
        f"the splits must have 'train', got {', '.join(map(str, data))}"
      )
    parts = {_TRAIN: data['train']}
    parts |= {_TEST: data['test']} if 'test' in data else {}
  names = getattr(parts[_TRAIN].features.get(label), 'names', None)
  tables = {
    name: {
      key: _spelled(
        part[key],
        getattr(part.features.get(label), 'names', names)
        if key == label
        else None,
        key,
      )
      for key in part.column_names
    }
    for name, part in parts.items()
  }
  given = {'client': client, 'label': label, 'time': time}
  return _build_table(
    tables,
    'from_huggingface',
    folder,
    given,
    features,
    names,
    dataset,
  )


def _check_distinct(names: Iterable[Any], what: str) -> None:
  """Raises DataError if two names are spelled alike, such as 1 and '1'."""
  given: dict[str, Any] = {}
  for name in names:
    if str(name) in given:
      raise errors.DataError(
        f'the {what} {given[str(name)]!r} and {name!r} have one name, '
        f'{str(name)!r}; give them different ones'
      )
    given[str(name)] = name


def _pair(client: str, pair: Any) -> tuple[Array, Array]:
  """Returns the arrays of a client."""
  try:
    x, y = (np.asarray(one) for one in pair)
  except (TypeError, ValueError) as error:
    raise errors.DataError(
      f'the examples of client {client!r} must be a pair of arrays, features '
      f'and labels: {error}'
    ) from None
  if x.shape[:1] != y.shape[:1] or not x.ndim:
    raise errors.DataError(
      f'client {client!r} has features of shape {x.shape} and labels of shape '
      f'{y.shape}; the first sizes must be equal, a row an example'
    )
  return x, y


def _join(what: str, arrays: Sequence[Array]) -> Array:
  """Returns the arrays of all clients as one, of one kind of dtype."""
  arrays = [one for one in arrays if len(one)] or [*arrays[:1]]
  pixels = np.uint8 if what == 'features' else None
  kinds = {
    (one.dtype.kind, one.dtype == pixels, one.shape[1:]) for one in arrays
  }
  if len(kinds) > 1:
    raise errors.DataError(
      f'the {what} of all clients must have one shape and one kind of dtype, '
      'got '
      + ' and '.join(sorted({f'{o.dtype} {o.shape[1:]}' for o in arrays}))
    )
  joined = np.concatenate(arrays)
  if joined.dtype.kind == 'O':
    for value in joined.flat:
      if not isinstance(value, str):
        raise errors.DataError(
          f'the {what} are an array of objects, of which each must be a text, '
          f'got {value!r}; leave out examples without a value, or make it an '
          'array of numbers'
        )
    joined = joined.astype(str)
  kinds, words = _KINDS[what]
  if joined.dtype.kind not in kinds:
    raise errors.DataError(
      f'the {what} must be {words}, got {joined.dtype}; convert them, such as '
      "by .astype('int32')"
    )
  return joined


def _elements(elements: Any, x: str, y: str) -> tuple[list[Any], list[Any]]:
  """Returns the features and the labels of a `tf.data.Dataset`."""
  rows = [*elements.as_numpy_iterator()]
  if rows and isinstance(rows[0], Mapping):
    for key in (x, y):
      if key not in rows[0]:
        raise errors.DataError(
          f'the elements have no key {key!r}; set x and y to two of: '
          f'{", ".join(rows[0])}'
        )
    rows = [(row[x], row[y]) for row in rows]
  return [row[0] for row in rows], [row[1] for row in rows]


def _spelled(
  values: Iterable[Any], names: Sequence[str] | None, column: str
) -> list[Any]:
  """Returns values as a Parquet file has them.

  Args:
    values: Numbers, texts, lists, images (with `save`, or their `bytes`).
    names: Names of the classes, if the values are their numbers.
    column: Name of their column.
  """
  if names is not None:
    return [_class_name(one, names) for one in values]
  return [_image_bytes(one, column, row) for row, one in enumerate(values)]


def _class_name(value: Any, names: Sequence[str]) -> str | None:
  """Returns a label in words; None for -1, a missing one."""
  if value is None or isinstance(value, str):
    return value
  if value < 0:
    return None
  if value >= len(names):
    raise errors.DataError(
      f'a label is {value}, but there are only the {len(names)} classes '
      f'{", ".join(names)}, from 0 on; mend the labels, or give their names'
    )
  return names[int(value)]


def _image_bytes(value: Any, column: str, row: int) -> Any:
  """Returns the content of an image's file; other values as they are."""
  if isinstance(value, Mapping):
    return value.get('bytes') or value
  if not hasattr(value, 'save'):
    return value
  if getattr(value, 'mode', '') in _PRINTED:
    value = value.convert('RGB')
  content = io.BytesIO()
  try:
    if getattr(value, 'mode', '').startswith('I'):
      raise OSError('it has more than 8 bits a channel')
    value.save(content, format='PNG')
  except OSError as error:
    raise errors.DataError(
      f'column {column!r}, row {row}: the image cannot be written as PNG: '
      f'{error}. Mend it, or convert it to 8-bit RGB or gray'
    ) from None
  return content.getvalue()


def _build_table(
  tables: Mapping[str, Mapping[str, Any]],
  maker: str,
  folder: str | os.PathLike[str],
  given: Mapping[str, str],
  features: Sequence[Mapping[str, Any]] | None,
  classes: Sequence[str] | None,
  dataset: Mapping[str, Any] | None,
) -> dataset_lib.FederatedDataset:
  """Writes the tables as Parquet files, and builds their dataset."""
  given = {
    role: '' if name is None else str(name) for role, name in given.items()
  }
  for role in ('client', 'label'):
    if not given[role]:
      raise errors.DataError(f'name the column of the {role}, got none')
  for feature in () if features is None else features:
    if not isinstance(feature, Mapping):
      raise errors.DataError(
        "a feature must be a mapping such as {'name': 'age'} or {'name': "
        f"'note', 'type': 'text'}}, got {feature!r}"
      )

  def write(raw: pathlib.Path, place: pathlib.Path) -> proposal_lib.Proposal:
    label, labels = given['label'], list[Any]()
    for name, table in tables.items():
      content = {key: _arrow(key, table[key]) for key in table}
      parquet.write_table(pyarrow.table(content), raw / name)
      if label in content:
        labels += content[label].to_pylist()
    found = classes
    if found is None and labels:  # Of all rows, as any may have a new class.
      found = proposal_lib.find_classes(columns.of_values(label, labels))
    proposal = proposal_lib.of_table(
      str(place / _TRAIN), columns.read(raw / _TRAIN), given, features, found
    )
    if _TEST not in tables:
      return proposal
    test_path = proposal_lib.Option('test_path', str(place / _TEST))
    splits = {
      **proposal.dataset.get('splits', {}),
      **proposal_lib.OFFICIAL_TEST,
    }
    return proposal._replace(
      options=(*proposal.options, test_path),
      dataset={**proposal.dataset, 'splits': splits},
    )

  return _build(write, maker, folder, dataset)


def _arrow(name: str, values: Any) -> pyarrow.Array:
  try:
    return pyarrow.array(values, from_pandas=True)
  except (pyarrow.ArrowException, OverflowError) as error:
    raise errors.DataError(
      f'column {name!r} cannot be written to Parquet: {error}. Make its values '
      'of one type, or leave it out.'
    ) from None


def _build(
  write: Callable[[pathlib.Path, pathlib.Path], proposal_lib.Proposal],
  maker: str,
  folder: str | os.PathLike[str],
  dataset: Mapping[str, Any] | None,
) -> dataset_lib.FederatedDataset:
  """Writes raw data and the config file that reads them; builds their dataset.

  Args:
    write: Writes raw data to a folder, and returns their proposal for when the
      folder is moved to a place.
    maker: Name of the function that was called.
    folder: See `from_arrays`.
    dataset: See `from_arrays`.
  """
  folder = pathlib.Path(folder)
  durable.make_folder(folder)
  with workdir.lock(folder):
    _check_is_made(folder)
    place, making = folder / _RAW, folder / _MAKING
    # That of a killed process.
    shutil.rmtree(making, ignore_errors=True)
    raw, path = making / _RAW, making / CONFIG
    raw.mkdir(parents=True)
    try:
      proposal = _with_options(write(raw, place), dataset)
      text = config_text.render(proposal, f'tff_algos.{maker}')
      path.write_text(f'{text}{_SEAL}{_sha256(text)}\n')
      config = experiment.parse(config_file.load(str(path)))
      # Never data of two calls together: without them the config names a folder
      # that is missing.
      shutil.rmtree(place, ignore_errors=True)
      os.replace(path, folder / CONFIG)
      durable.publish(raw, place)
    finally:
      shutil.rmtree(making, ignore_errors=True)
    return dataset_lib.FederatedDataset.open(
      datasets.build(config.dataset, folder).path
    )


def _check_is_made(folder: pathlib.Path) -> None:
  """Raises DataError if what is to be replaced is not as a call wrote it."""
  config = folder / CONFIG
  if config.is_file():
    text, _, seal = config.read_text(errors='replace').rpartition(_SEAL)
    if seal.strip() == _sha256(text):
      return
  for place in (config, folder / _RAW):
    if os.path.lexists(place):
      raise errors.DataError(
        f'{place} is there, and not as an earlier call wrote it; nothing is '
        f'changed. Take another folder, or move {CONFIG} and {_RAW} away'
      )


def _sha256(text: str) -> str:
  return hashlib.sha256(text.encode()).hexdigest()


def _is_plain(value: Any) -> bool:
  """Returns whether a value is read again from its text in a config file."""
  try:
    return bool(ast.literal_eval(repr(value)) == value)
  except (SyntaxError, ValueError):
    return False


def _with_options(
  proposal: proposal_lib.Proposal, dataset: Mapping[str, Any] | None
) -> proposal_lib.Proposal:
  """Returns the proposal with the caller's options of `config.dataset`."""
  options = dict(proposal.dataset)
  for key, value in (dataset or {}).items():
    if not str(key).isidentifier() or not _is_plain(value):
      raise errors.ConfigError(
        f'dataset={{{key!r}: {value!r}}} cannot be written to a config file; '
        'give names of options, and finite numbers, texts, lists and mappings'
      )
    if isinstance(value, Mapping):
      value = {**options.get(key, {}), **value}
    options[key] = value
  return proposal._replace(dataset=options)
