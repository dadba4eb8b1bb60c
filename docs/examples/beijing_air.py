"""Air of Beijing: one table of twelve stations, with the air of tomorrow.

  python docs/examples/beijing_air.py --raw=air.zip --out=data/air.csv

reads the "Beijing Multi-Site Air Quality" data of UCI (CC BY 4.0, hourly from
2013-03 to 2017-02, https://archive.ics.uci.edu/dataset/501), its zip as it was
downloaded or a folder with its CSV files, and writes a row for each station and
sixth hour: time, station, what was measured, and the label `tomorrow`, the
level of fine dust (PM2.5) 24 hours later: good (at most 35 micrograms per cubic
metre), moderate (75) or unhealthy. Rows without it are left out.
"""

import argparse
import csv
import io
import lzma
import pathlib
import zipfile
from collections.abc import Iterator

MEASURED = (
  *('PM10', 'SO2', 'NO2', 'CO', 'O3', 'TEMP', 'PRES', 'DEWP', 'RAIN'),
  *('WSPM', 'wd'),
)
COLUMNS = ('time', 'station', 'month', 'hour', 'dust', *MEASURED, 'tomorrow')
_DATE = ('year', 'month', 'day')
_EVERY = 6
_AHEAD = 24
_LEVELS = ((35, 'good'), (75, 'moderate'), (float('inf'), 'unhealthy'))


def read_stations(raw: pathlib.Path) -> Iterator[list[dict[str, str]]]:
  """Yields the hours of each station, in the order of time.

  Args:
    raw: The zip file, or a folder with the CSV files (plain or .xz).
  """
  for text in _texts(raw):
    yield [*csv.DictReader(io.StringIO(text))]


def _texts(raw: pathlib.Path | zipfile.Path) -> Iterator[str]:
  """Yields the CSV files, also of folders and of zips inside of the zip."""
  if isinstance(raw, pathlib.Path) and raw.is_file() and raw.suffix == '.zip':
    raw = zipfile.Path(raw)
  for path in sorted(raw.iterdir(), key=lambda one: one.name):
    if path.is_dir():
      yield from _texts(path)
    elif path.name.endswith('.zip'):
      yield from _texts(zipfile.Path(io.BytesIO(path.read_bytes())))
    elif path.name.startswith('PRSA_Data_'):
      content = path.read_bytes()
      is_packed = path.name.endswith('.xz')
      yield (lzma.decompress(content) if is_packed else content).decode()


def rows(hours: list[dict[str, str]]) -> Iterator[list[str]]:
  """Yields the rows of a station, without those of an unknown tomorrow."""
  for now, later in zip(hours[::_EVERY], hours[_AHEAD::_EVERY], strict=False):
    if later['PM2.5'] == 'NA':
      continue
    dust = float(later['PM2.5'])
    date = '{:0>4}-{:0>2}-{:0>2}'.format(*(now[k] for k in _DATE))
    measured = (now[name].replace('NA', '') for name in ('PM2.5', *MEASURED))
    yield [
      f'{date}T{now["hour"]:0>2}:00',
      now['station'],
      now['month'],
      now['hour'],
      *measured,
      next(level for most, level in _LEVELS if dust <= most),
    ]


def write(raw: pathlib.Path, out: pathlib.Path) -> int:
  """Writes the table; returns the number of its rows."""
  found = [row for hours in read_stations(raw) for row in rows(hours)]
  if not found:
    raise SystemExit(
      f'{raw} has no rows of PRSA_Data_*.csv; nothing is written'
    )
  out.parent.mkdir(parents=True, exist_ok=True)
  with out.open('w', newline='') as file:
    csv.writer(file).writerows([COLUMNS, *found])
  return len(found)


def main() -> None:
  """Reads the flags and writes the table."""
  parser = argparse.ArgumentParser(description='Table of the air of Beijing.')
  parser.add_argument('--raw', type=pathlib.Path, required=True)
  parser.add_argument('--out', type=pathlib.Path, required=True)
  arguments = parser.parse_args()
  if not arguments.raw.is_dir() and arguments.raw.suffix != '.zip':
    parser.error(f'--raw={arguments.raw} is neither a folder nor a .zip')
  print(f'{write(arguments.raw, arguments.out)} rows in {arguments.out}')


if __name__ == '__main__':
  main()
