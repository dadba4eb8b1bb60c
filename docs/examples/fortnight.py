r"""Raw data of a simulated fortnight: clients that come, go and drift.

  python -m docs.examples.fortnight --folder=/data/raw --day=6

makes the folder what a night sees after day 6, from 1 to 14: one CSV file a
day, the latest four of them. The content is a function of day and seed alone.

An example has four features and one of three classes. The classes of a cluster
are Gaussians around points on a circle of the first two features; the clusters
permute these points, so that one model for all clients is no better than
chance. The points turn by 4 degrees a day. What happens:

  day 3, 5, 8    a new client in each cluster
  day 4, 7       a client of each cluster leaves; those of day 4 return on
                 day 10
  day 6          half of the first cluster turns by 60 degrees: a fourth cluster
  day 9          the files of earlier days come again with permuted labels
  day 10         these files are mended
  day 11         no file
  day 12         the new file lacks a column
  day 13         this file is mended

On day 9 the latest file alone is right: a split by time
(`splits.split_by='client_time'`) trains on permuted labels and tests on true
ones, as a gate must, since what is wrong everywhere cannot be seen in the data.
Of the clients that left on day 7 there are permuted ones alone.
"""

import argparse
import csv
import datetime
import math
import pathlib

from tff_algos.core import durable, seeds

NUM_DAYS = 14
WINDOW = 4
CLASSES = ('low', 'middle', 'high')
FEATURES = ('f0', 'f1', 'f2', 'f3')
COLUMNS = ('client', 'time', *FEATURES, 'label')
NUM_CLUSTERS = 3

SPLIT_DAY, POISONED_DAY, EMPTY_DAY, BAD_DAY = 6, 9, 11, 12
_FIRST_DATE = datetime.date(2026, 11, 1)
_CLIENTS_AT_FIRST = 10
_ARRIVALS = (3, 5, 8)
_LEAVES, _RETURNS, _LEAVES_FOR_GOOD = 4, 10, 7
_MIN_ROWS, _MAX_ROWS = 10, 16
_RADIUS, _NOISE = 2.0, 0.8
_DEGREES_A_DAY, _DEGREES_OF_SPLIT = 4.0, 60.0


def date_of(day: int) -> str:
  """Returns the date of a day from 1 to 14."""
  return (_FIRST_DATE + datetime.timedelta(days=day - 1)).isoformat()


def clients_of(day: int) -> dict[str, int]:
  """Returns client id -> cluster of the clients with rows on a day.

  The clusters are 0, 1 and 2; from day 6 on also 3, split off 0.
  """
  found = {}
  for cluster in range(NUM_CLUSTERS):
    for number in range(_CLIENTS_AT_FIRST + len(_ARRIVALS)):
      if _is_there(number, day):
        has_split = cluster == 0 and number % 2 and day >= SPLIT_DAY
        found[f'c{cluster}_{number:02d}'] = (
          NUM_CLUSTERS if has_split else cluster
        )
  return found


def rows_of(day: int, seed: int = 0) -> list[dict[str, str]]:
  """Returns the true rows of a day, by client and time."""
  rows = []
  for client_id, cluster in clients_of(day).items():
    draw = seeds.numpy_generator(seed, 'fortnight', day, client_id)
    num_rows = int(draw.integers(_MIN_ROWS, _MAX_ROWS + 1))
    minutes = sorted(draw.choice(24 * 60, num_rows, replace=False).tolist())
    for minute in minutes:
      label = int(draw.integers(len(CLASSES)))
      angle = math.radians(angle_of(cluster, label, day))
      noise = draw.normal(0, _NOISE, len(FEATURES)).tolist()
      center = (_RADIUS * math.cos(angle), _RADIUS * math.sin(angle), 0, 0)
      x = (f'{a + b:.5f}' for a, b in zip(center, noise, strict=True))
      time = f'{date_of(day)}T{minute // 60:02d}:{minute % 60:02d}'
      cells = (client_id, time, *x, CLASSES[label])
      rows.append(dict(zip(COLUMNS, cells, strict=True)))
  return rows


def angle_of(cluster: int, label: int, day: int) -> float:
  """Returns the place of a class on the circle, in degrees."""
  drift = _DEGREES_A_DAY * (day - 1)
  if cluster == NUM_CLUSTERS:
    return 120.0 * label + _DEGREES_OF_SPLIT + drift
  return 120.0 * (label + cluster) + drift


def files_on(day: int) -> list[int]:
  """Returns the days whose files are in the folder after a day."""
  return [one for one in range(1, day + 1) if one != EMPTY_DAY][-WINDOW:]


def write(folder: pathlib.Path, day: int, seed: int = 0) -> None:
  """Makes a folder what a night sees after a day; other CSV files go.

  Args:
    folder: Of the raw files; made if it is missing.
    day: From 1 to 14.
    seed: Base of the random draws, >= 0.
  """
  durable.make_folder(folder)
  names = set()
  for one in files_on(day):
    path = folder / f'{date_of(one)}.csv'
    names.add(path.name)
    rows = rows_of(one, seed)
    columns: list[str] = list(COLUMNS)
    if day == POISONED_DAY and one < day:
      for row in rows:
        place = CLASSES.index(row['label'])
        row['label'] = CLASSES[(place + 1) % len(CLASSES)]
    if one == day == BAD_DAY:
      columns.remove(FEATURES[-1])
    with durable.replacing(path, newline='') as file:
      writer = csv.DictWriter(file, columns, extrasaction='ignore')
      writer.writeheader()
      writer.writerows(rows)
  for path in folder.glob('*.csv'):
    if path.name not in names:
      path.unlink()


def _is_there(number: int, day: int) -> bool:
  """Returns whether a client of a cluster has rows, by its number there."""
  if number >= _CLIENTS_AT_FIRST:
    return day >= _ARRIVALS[number - _CLIENTS_AT_FIRST]
  if number == 0:
    return not _LEAVES <= day < _RETURNS
  return not (number == 1 and day >= _LEAVES_FOR_GOOD)


def _main() -> None:
  parser = argparse.ArgumentParser(
    description='Raw data of a simulated fortnight.'
  )
  parser.add_argument('--folder', type=pathlib.Path, required=True)
  parser.add_argument(
    '--day', type=int, required=True, choices=range(1, NUM_DAYS + 1)
  )
  parser.add_argument('--seed', type=int, default=0)
  flags = parser.parse_args()
  write(flags.folder, flags.day, flags.seed)
  print(date_of(flags.day))


if __name__ == '__main__':
  _main()
