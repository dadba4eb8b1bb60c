"""Proposal of a config for raw data: guesses from names and contents.

Guesses are for a person to check: each option has its evidence beside it.
"""

import collections
import math
import pathlib
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pipelines.sources import arrays, cells, images
from tff_algos.core import errors
from tff_algos.experiments.own_data import columns as columns_lib
from tff_algos.features import spec

# Role -> words of the names of its columns.
_WORDS = {
  'time': frozenset('date datetime time timestamp'.split()),
  'client': frozenset(
    'account author client clinic customer device hospital household machine '
    'member participant patient person player sensor shop site speaker station '
    'store subject user userid writer'.split()
  ),
  'label': frozenset(
    'activity category class diagnosis label outcome rating sentiment species '
    'target y'.split()
  ),
}
# Such as -1.234,5 of European files.
_DECIMAL_COMMA = re.compile(r'-?[\d.]+,\d+$')
_PARTS = re.compile(r'[A-Z]?[a-z]+|[A-Z]+|\d+')

# Most classes of a label, most values of a category, fewest words of a text.
_MAX_CLASSES = 50
_MAX_CATEGORIES = 1000
_FEWEST_WORDS = 3.0
# Fewest rows of a client: on average, for a column to name clients; and of
# those that configs/own_data.py keeps.
_ROWS_OF_A_CLIENT = 5

_STATE_NAMES = 3

# Images that are opened; sides of what they are resized to, in pixels. The
# least is that of the models for images.
_MAX_IMAGES = 50
_LARGEST_SIDE = 64
_SMALLEST_SIDE = 16


_NO_WORDS = (
  'Whole numbers are ids of words, and arrays have no words, which word_lstm '
  'needs: take a Keras model with an Embedding (docs/own_models.md). If they '
  'are quantities, write floats.'
)

# Folders of other layouts, in the place of clients.
_SPLITS = frozenset(
  ('train', 'training', 'val', 'valid', 'validation', 'test', 'testing')
)
# Splits with an official test split: a client's are its test examples.
OFFICIAL_TEST = {'client_test': 'dealt', 'test_ratio': 0.0}


class Option(NamedTuple):
  """An option of a source, with its evidence.

  Attributes:
    key: Name of the option.
    value: Its value.
    evidence: Lines that say why.
  """

  key: str
  value: Any
  evidence: tuple[str, ...] = ()


class Proposal(NamedTuple):
  """Config that suits raw data.

  Attributes:
    title: What the data are.
    source: Name in `pipelines.sources.registry`.
    model: Name in `models.registry`.
    num_clients: Number of clients, as far as it is known.
    options: Options of the source.
    dataset: Other options of `config.dataset`.
    notes: What else was found.
  """

  title: str
  source: str
  model: str
  num_clients: int
  options: tuple[Option, ...]
  dataset: Mapping[str, Any]
  notes: tuple[str, ...] = ()


class Roles(NamedTuple):
  """Columns of a table that are no features, by their names.

  Attributes:
    client: Client of a row.
    label: Label of a row.
    time: Time of a row; '' for none.
  """

  client: str
  label: str
  time: str = ''


def of_table(
  path: str,
  table: columns_lib.Table,
  given: Mapping[str, str | None],
  features: Sequence[Mapping[str, Any]] | None = None,
  classes: Sequence[str] | None = None,
) -> Proposal:
  """Returns the proposal for a table.

  Args:
    path: Path of the file.
    table: A look at it.
    given: Role, see `Roles` -> name of its column; None or left out to guess,
      '' for no time.
    features: The features; None to guess.
    classes: Spellings of the labels, class 0 first; None to guess.

  Raises:
    DataError: If two columns have one name, a named one is missing, or nothing
      can be a client or a label.
  """
  table, left_out = _named(path, table)
  by_name = {column.name: column for column in table.columns}
  named = [(role, name) for role, name in given.items() if name]
  named += [('feature', feature.get('name')) for feature in features or ()]
  for role, name in named:
    if name not in by_name:
      raise errors.DataError(
        f'{path} has no column {name!r} for the {role}; its columns are: '
        f'{", ".join(by_name)}'
      )
  roles, evidence = _find_roles(path, table, given)
  client = by_name[roles.client]
  by_name[roles.client] = client.of_clients()
  label = by_name[roles.label]
  doubt = ''
  if classes is None:
    classes, doubt = find_classes(label), _doubt(table)
  for column in (by_name[roles.client], *([label] if classes else [])):
    _check_spellings(path, column)
  if table.delimiter not in ('', ','):
    for column in table.columns:
      _check_points(path, column)
  if len(classes) == 1:
    raise errors.DataError(
      f'{path} has one class alone in the label column {label.name!r}, '
      f'{classes[0]!r}; a model needs two or more to tell apart.{doubt}'
    )
  if features is None:
    features_option = _guess_features(table, roles, left_out)
  else:
    features_option = Option('features', tuple(features))
  if not features_option.value:
    raise errors.DataError(
      f'{path} has no column that can be a feature. '
      + (' '.join(left_out) or 'Each is the client, the label or the time.')
    )
  options = [
    Option('path', path),
    *_form(table),
    Option('client_column', roles.client, evidence['client']),
    Option('label_column', roles.label, evidence['label']),
    *([Option('classes', tuple(classes))] if classes else []),
    *(
      [Option('time_column', roles.time, evidence['time'])]
      if roles.time
      else []
    ),
    features_option,
  ]
  dataset: dict[str, Any] = {}
  if roles.time:
    dataset['splits'] = {'split_by': 'client_time'}
  fraction = _dead_letter_fraction(by_name, roles, features_option.value)
  if fraction:
    dataset['max_dead_letter_fraction'] = fraction
  sizes = by_name[roles.client].values
  return Proposal(
    title=path,
    source='table',
    model=_model(features_option.value, has_classes=bool(classes)),
    # Of a part of the rows the sizes are not known.
    num_clients=len(sizes) if table.part else _num_clients(sizes),
    options=tuple(options),
    dataset=dataset,
    notes=(
      _rows(table),
      *left_out,
      *_notes_on_label(label, classes, doubt),
      *_notes_on_missing(client),
    ),
  )


def _named(
  path: str, table: columns_lib.Table
) -> tuple[columns_lib.Table, list[str]]:
  """Returns the columns that have names, and a line on each of the others.

  Raises:
    DataError: If two columns have one name.
  """
  names = [column.name for column in table.columns]
  left_out = []
  for i, name in enumerate(names):
    if not name:
      # Such as the index that pandas writes.
      left_out.append(f'Column {i + 1} is left out: it has no name.')
    elif name in names[:i]:
      raise errors.DataError(
        f'{path} has two columns {name!r}, {names.index(name) + 1} and '
        f'{i + 1} of {len(names)}; name or leave out one of them'
      )
  kept = tuple(column for column in table.columns if column.name)
  return table._replace(columns=kept), left_out


def _check_spellings(path: str, column: columns_lib.Column) -> None:
  """Raises DataError if a number is in a column of texts as `7` and `7.0`."""
  twice = cells.find_two_spellings(column.values)
  if twice is not None:
    raise errors.DataError(
      f'{path} has {twice[0]} and {twice[1]} in the column {column.name!r}, '
      'which would be two clients or classes. Write it alike in all rows: '
      'pandas turns integers into floats if one is missing, unless they are '
      "'Int64'"
    )


def _check_points(path: str, column: columns_lib.Column) -> None:
  """Raises DataError if a column has numbers with decimal commas."""
  spelled = [value for value in column.values if _DECIMAL_COMMA.match(value)]
  if spelled and len(spelled) > len(column.values) / 2:
    raise errors.DataError(
      f'{path} has numbers with decimal commas in the column {column.name!r}, '
      f'such as {spelled[0]}, which would be texts. Write them with points'
    )


def _num_clients(num_examples: Mapping[str, int]) -> int:
  """Returns the number of clients that the config keeps, at least 1."""
  kept = sum(num >= _ROWS_OF_A_CLIENT for num in num_examples.values())
  return max(kept, 1)


def of_images(folder: str) -> Proposal:
  """Returns the proposal for images in folders `client/class`.

  Raises:
    DataError: If they do not lie there.
  """
  source = images.Images(images.Options(folder), 0)
  found = source.listed
  classes = source.facts()['class_names']
  clients = collections.Counter(one.client for one in found if one.client)
  if clients and _SPLITS.issuperset(map(str.lower, clients)):
    raise errors.DataError(
      f'{folder!r} has the folders {", ".join(sorted(clients))} in the place '
      'of clients: they look like splits. Put images at client/class/file'
    )
  step = math.ceil(len(found) / _MAX_IMAGES)
  shape, evidence = _image_shape(
    [pathlib.Path(folder, image.path) for image in found[::step]]
  )
  return Proposal(
    title=folder,
    source='images',
    model='small_cnn',
    num_clients=_num_clients(clients),
    options=(
      Option('folder', folder, (f'{len(found):,} files',)),
      Option('shape', shape, evidence),
      Option('classes', tuple(classes)),
    ),
    dataset={},
  )


def _image_shape(
  paths: Sequence[pathlib.Path],
) -> tuple[tuple[int, int, int], tuple[str, ...]]:
  """Returns a shape for images, and the evidence."""
  # Imported here, since it is slow.
  import tensorflow as tf

  shapes = []
  for path in paths:
    try:
      image = tf.io.decode_image(path.read_bytes(), expand_animations=False)
    except (tf.errors.InvalidArgumentError, OSError):
      continue
    shapes.append(image.shape)
  if not shapes:
    raise errors.DataError(
      f'none of {len(paths)} files is a PNG, JPEG or BMP image, such as '
      f'{str(paths[0])!r}'
    )
  height, width = (
    statistics.median_low(shape[axis] for shape in shapes) for axis in (0, 1)
  )
  factor = min(1.0, _LARGEST_SIDE / max(height, width))
  sides = [max(round(s * factor), _SMALLEST_SIDE) for s in (height, width)]
  channels = 3 if any(shape[2] > 1 for shape in shapes) else 1
  evidence = (
    f'Of {len(shapes)} images that were opened, the median is {height} x '
    f'{width}; the largest has {max(map(math.prod, shapes)):,} values'
  )
  return (sides[0], sides[1], channels), (evidence,)


def of_arrays(folder: str, place: str = '') -> Proposal:
  """Returns the proposal for arrays in a folder, see `sources.arrays`.

  Args:
    folder: The folder.
    place: Where it will be moved to; '' if it stays.

  Raises:
    DataError: If they are damaged or do not fit each other.
  """
  source = arrays.Arrays(arrays.Options(folder), 0)
  features = source.features()
  has_test = source.has_test_split()
  sides = features.x_shape[:2]
  model, notes = 'mlp', ()
  if features.x_dtype == 'int32' and (
    # It predicts ids, and has an embedding of as many.
    features.y_shape == features.x_shape
    and source.greatest_id() < features.num_classes
  ):
    model = 'transformer'
  elif features.x_dtype == 'int32':
    model, notes = 'word_lstm', (_NO_WORDS,)
  elif len(features.x_shape) == 3 and min(sides) >= _SMALLEST_SIDE:
    model = 'small_cnn' if features.num_classes else 'mlp'
  return Proposal(
    title=place or folder,
    source='arrays',
    model=model,
    num_clients=_num_clients(source.client_sizes()),
    options=(
      Option(
        'folder',
        place or folder,
        (f'{features.x_dtype} of shape {features.x_shape}',),
      ),
    ),
    dataset={'splits': OFFICIAL_TEST} if has_test else {},
    notes=notes,
  )


def _rows(table: columns_lib.Table) -> str:
  if not table.part:
    return f'{table.num_rows:,} rows.'
  return f'{table.part.capitalize()} were looked at.'


def _doubt(table: columns_lib.Table) -> str:
  """Returns a sentence on classes that may be missing; '' if none are."""
  if not table.part:
    return ''
  return (
    f' Classes are those of {table.part}: name others in `classes` of a '
    'config, such as configs/own/table.py, or their rows are dead letters.'
  )


def _form(table: columns_lib.Table) -> list[Option]:
  """Returns the options of an unusual CSV file."""
  found = []
  if table.delimiter not in ('', ','):
    found.append(Option('delimiter', table.delimiter))
  if not table.has_header:
    names = tuple(column.name for column in table.columns)
    found.append(Option('column_names', names, ('There is no header line.',)))
  return found


def _find_roles(
  path: str, table: columns_lib.Table, given: Mapping[str, str | None]
) -> tuple[Roles, dict[str, tuple[str, ...]]]:
  """Returns the roles of columns, and the evidence of each."""
  may_be = {'time': _may_be_time, 'client': _may_be_client}
  candidates = {
    role: _by_name(filter(test, table.columns), role)
    for role, test in may_be.items()
  }
  if given.get('time') == '':
    candidates['time'] = []
  chosen: dict[str, str] = {}
  for role in ('time', 'client'):
    named = given.get(role)
    taken = {*chosen.values(), *given.values()}
    candidates[role] = [c for c in candidates[role] if c.name not in taken]
    names = [c.name for c in candidates[role]]
    chosen[role] = named or (names[0] if names else '')
  if not chosen['client']:
    raise errors.DataError(
      f'{path} has no column that can be a client'
      f'{f" in {table.part}" if table.part else ""}: one of texts or whole '
      f'numbers with {_ROWS_OF_A_CLIENT} rows or more of each value, on '
      'average. Add one, or name it.'
    )
  labels = [
    c
    for c in reversed(table.columns)
    if c.name not in chosen.values() and _may_be_label(c)
  ]
  candidates['label'] = _by_name(labels, 'label')
  chosen['label'] = given.get('label') or (
    candidates['label'][0].name if candidates['label'] else ''
  )
  if not chosen['label']:
    raise errors.DataError(
      f'{path} has no column that can be a label: numbers, or texts of at most '
      f'{_MAX_CLASSES} classes'
    )
  if len({*chosen.values()}) < len([*filter(None, chosen.values())]):
    raise errors.DataError(
      f'client, label and time must be different columns, got {chosen}'
    )
  evidence = {
    role: () if given.get(role) else _evidence(candidates[role], role)
    for role in chosen
  }
  return Roles(**chosen), evidence


def _by_name(
  columns: Iterable[columns_lib.Column], role: str
) -> list[columns_lib.Column]:
  """Returns columns that are named like a role first; only those of times.

  Then come those of most values, for clients, or in the given order.
  """
  columns = [*columns]
  named = [c for c in columns if _WORDS[role] & _words(c.name)]
  others = [c for c in columns if c not in named and role != 'time']
  if role == 'client':
    others.sort(key=lambda column: -len(column.values))
  return named + others


def _words(name: str) -> set[str]:
  return {part.lower() for part in _PARTS.findall(name)} | {name.lower()}


def _may_be_time(column: columns_lib.Column) -> bool:
  if column.kind == columns_lib.NUMBER:  # `response_time` is a duration.
    is_time = column.name.lower() in _WORDS['time']
  else:
    is_time = column.kind == columns_lib.TIME
  return is_time and len(column.values) > 1


def _may_be_client(column: columns_lib.Column) -> bool:
  is_id = column.kind == columns_lib.TEXT or column.is_whole
  is_id = is_id and column.has_all_values
  rows = column.num_present / max(len(column.values), 1)
  return is_id and len(column.values) > 1 and rows >= _ROWS_OF_A_CLIENT


def _may_be_label(column: columns_lib.Column) -> bool:
  if column.kind == columns_lib.NUMBER:
    return len(column.values) > 1
  return column.kind == columns_lib.TEXT and (
    1 < len(column.values) <= _MAX_CLASSES
  )


def _evidence(
  candidates: Sequence[columns_lib.Column], role: str
) -> tuple[str, ...]:
  """Returns why the first candidate was chosen, and what others could be."""
  if not candidates:
    return ()
  first, *others = candidates
  lines = [_describe(first)]
  if role == 'client':
    rows = first.num_present / len(first.values)
    lines[0] += f'; {len(first.values):,} clients with {rows:,.0f} rows each'
  if not _WORDS[role] & _words(first.name):
    lines.append(f'No column is named like a {role}: is it this one?')
  if others:
    names = ', '.join(repr(c.name) for c in others[:_STATE_NAMES])
    more = ', ...' if len(others) > _STATE_NAMES else ''
    lines.append(f'Others that it could be: {names}{more}')
  return tuple(lines)


def find_classes(label: columns_lib.Column) -> tuple[str, ...]:
  """Returns the spellings of the classes; () for a regression."""
  if label.kind == columns_lib.NUMBER:
    numbers = [*filter(columns_lib.is_number, label.values)]
    if not label.is_whole or len(numbers) > 20:
      return ()
    return tuple(sorted(numbers, key=float))
  return tuple(sorted(label.values))


def _notes_on_missing(client: columns_lib.Column) -> tuple[str, ...]:
  """Returns a note if rows of some clients are left out, which may be wrong."""
  names = sorted(client.values.keys() - client.of_clients().values.keys())
  if not names:
    return ()
  return (
    f'Rows of the client {" or ".join(map(repr, names))} are left out, as a '
    'spelling of a missing one. If it is a name, set na_values=().',
  )


def _notes_on_label(
  label: columns_lib.Column, classes: Sequence[str], doubt: str
) -> tuple[str, ...]:
  if not label.num_present:
    return ('No row has a label.',)
  if classes:
    num_rows = {one: label.values.get(one, 0) for one in classes}
    rarest = min(classes, key=lambda one: num_rows[one])
    return (
      f'Classification; the rarest class, {rarest!r}, has '
      f'{num_rows[rarest]:,} rows.{doubt}',
    )
  return (
    f'Regression. Targets from {label.minimum:g} to {label.maximum:g} are '
    'used as they are: if training diverges, lower the learning rate, or '
    'write the column in a larger unit.',
  )


def _guess_features(
  table: columns_lib.Table, roles: Roles, left_out: list[str]
) -> Option:
  """Returns the features; appends to `left_out` what is none, and why."""
  found, evidence = [], []
  for column in table.columns:
    if column.name in roles:
      continue
    feature, why = _feature(column)
    if feature is None:
      left_out.append(f'{column.name} is left out: {why}.')
    else:
      found.append(feature)
      evidence.append(_describe(column))
  # An image, or windows of one length, are an input by themselves.
  alone = [f for f in found if f.get('type') == 'image'][:1]
  windows = [f for f in found if 'length' in f]
  if not alone:
    alone = [f for f in windows if f['length'] == windows[0]['length']]
  if alone and len(found) > len(alone):
    left_out += [
      f'{f["name"]} is left out: beside an image, or windows of one length, '
      'there are no other features.'
      for f in found
      if f not in alone
    ]
    evidence = [e for e, f in zip(evidence, found, strict=True) if f in alone]
    found = alone
  return Option('features', tuple(found), tuple(evidence))


def _feature(
  column: columns_lib.Column,
) -> tuple[dict[str, Any] | None, str]:
  """Returns a column as a feature, or None and the reason."""
  name = {'name': column.name}
  match column.kind:
    case _ if column.name in spec.RESERVED:
      return None, 'its name is reserved; rename it to have it as a feature'
    case columns_lib.NUMBER if len(column.values) < 2:
      return None, 'one value alone'
    case columns_lib.NUMBER if column.counts_rows:
      return None, 'it counts the rows'
    case columns_lib.NUMBER:
      missing = {'missing': 'mean'} if column.num_missing else {}
      return {**name, **missing}, ''
    case columns_lib.WINDOW:
      return {**name, 'length': column.length}, ''
    case columns_lib.IMAGE:
      return {**name, 'type': 'image', 'shape': (32, 32, 3)}, ''
    case columns_lib.TEXT if len(column.values) < 2:
      return None, 'one value alone'
    case columns_lib.TEXT if column.mean_words >= _FEWEST_WORDS and (
      len(column.values) > column.num_present / 10
    ):
      return {**name, 'type': 'text'}, ''
    case columns_lib.TEXT if (
      len(column.values) <= _MAX_CATEGORIES
      and len(column.values) <= column.num_present / 2
    ):
      return {**name, 'type': 'category'}, ''
    case columns_lib.TEXT:
      return None, f'{len(column.values):,} different values, an id or a name'
    case columns_lib.TIME:
      return None, 'a time'
    case _:
      return None, 'neither numbers nor texts'


def _describe(column: columns_lib.Column) -> str:
  """Returns the content of a column in a line."""
  count = f'{len(column.values):,}{"" if column.has_all_values else "+"}'
  match column.kind:
    case columns_lib.NUMBER:
      kind = 'whole numbers' if column.is_whole else 'numbers'
      text = f'{kind} from {column.minimum:g} to {column.maximum:g}'
      if column.is_whole and len(column.values) <= 20:
        text += f', {count} values: a category?'
    case columns_lib.TEXT if column.mean_words >= _FEWEST_WORDS:
      text = f'{count} texts of {column.mean_words:.0f} words'
    case columns_lib.TEXT:
      values = sorted(column.values)[:_STATE_NAMES]
      text = f'{count} texts, such as {", ".join(map(repr, values))}'
    case columns_lib.WINDOW:
      text = f'windows of {column.length} numbers'
    case columns_lib.TIME:
      text = f'times, such as {min(column.values)}'
    case _:
      text = f'{column.kind}s'
  if column.num_missing:
    text += f'; {column.num_missing:,} missing'
  if column.num_odd:
    text += f'; {column.num_odd:,} others, which are dead letters'
  return f'{column.name}: {text}'


def _model(features: Sequence[Mapping[str, Any]], *, has_classes: bool) -> str:
  if any(feature.get('type') == 'image' for feature in features):
    # The networks for images are classifiers.
    return 'small_cnn' if has_classes else 'mlp'
  if any(feature.get('encoding') == 'ids' for feature in features):
    return 'word_lstm'
  return 'mlp'


def _dead_letter_fraction(
  columns: Mapping[str, columns_lib.Column],
  roles: Roles,
  features: Sequence[Mapping[str, Any]],
) -> float:
  """Returns twice the share of rows that are dead letters, in percents.

  At most 0.99, as the option is below 1.
  """
  no_gaps = [name for name in roles if name]
  no_gaps += [f['name'] for f in features if f.get('type') == 'image']
  no_gaps += [f['name'] for f in features if 'length' in f]
  num_bad = sum(columns[name].num_missing for name in no_gaps)
  num_bad += sum(columns[name].num_odd for name in roles if name)
  num_bad += sum(columns[f['name']].num_odd for f in features)
  num_rows = next(iter(columns.values())).num_rows
  return min(math.ceil(200 * num_bad / num_rows), 99) / 100
