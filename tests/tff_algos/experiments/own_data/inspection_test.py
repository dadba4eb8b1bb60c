import pytest

from tests.testing import raw_data, raw_sources
from tff_algos.core import errors
from tff_algos.experiments.own_data import inspection


def test_table(tmp_path):
  raw_data.write_csv(tmp_path)
  text = inspection.propose_file(
    tmp_path / 'table.csv', 'inspect --it', {'label': 'y', 'time': None}
  )
  assert '\n  inspect --it\n' in text
  assert "client_column='who'" in text
  assert "classes=('no', 'yes')" in text


def test_pattern_of_tables(tmp_path):
  raw_data.write_csv(tmp_path)
  (tmp_path / 'table.csv').rename(tmp_path / 'day-1.csv')
  (tmp_path / 'day-2.csv').write_text('damaged')
  pattern = str(tmp_path / 'day-*.csv')
  text = inspection.propose_file(pattern, 'inspect', {'label': 'y'})
  assert f'path={pattern!r}' in text
  assert "classes=('no', 'yes')" in text
  with pytest.raises(errors.DataError, match=r"there is no file '.*/x\*'"):
    inspection.propose_file(tmp_path / 'x*', 'inspect')


def test_clients_of_the_first_file_of_several(tmp_path):
  """With few rows in each; those of a whole table would be left out."""
  rows = [f'c{i},{i / 3},{i % 2}' for i in range(12)]
  for day in '12':
    path = tmp_path / f'day-{day}.csv'
    path.write_text('\n'.join(['who,a,ill', *rows]))
  given = {'client': 'who', 'label': 'ill'}
  text = inspection.propose_file(tmp_path / 'day-*.csv', 'inspect', given)
  assert 'num_clients=12' in text
  assert 'The 12 rows of the first file were looked at.' in text
  assert 'Classes are those of the 12 rows of' in ' '.join(text.split())
  text = inspection.propose_file(tmp_path / 'day-1.csv', 'inspect', given)
  assert 'num_clients=1\n' in text and '12 rows.' in text


@pytest.mark.parametrize(
  ('write', 'source'),
  [
    (raw_sources.write_images, 'images'),
    (raw_sources.write_arrays, 'arrays'),
  ],
)
def test_folder(tmp_path, write, source):
  write(tmp_path)
  text = inspection.propose_file(tmp_path, 'inspect')
  assert f'source={source!r}' in text
  assert f'folder={str(tmp_path)!r}' in text


def test_pattern_of_folders(tmp_path):
  """A dataset expands the names of files alone; brackets may be in a name."""
  for folder in ('day=1', 'part [1]'):
    (tmp_path / folder).mkdir()
    raw_data.write_csv(tmp_path / folder)
  given = {'label': 'y'}
  with pytest.raises(errors.DataError, match='a pattern among its folders'):
    inspection.propose_file(tmp_path / 'day=*' / 'table.csv', 'inspect', given)
  for name in ('table.csv', '*.csv'):
    path = tmp_path / 'part [1]' / name
    inspection.propose_file(path, 'inspect', given)


def test_folder_of_tables(tmp_path):
  raw_data.write_csv(tmp_path)
  with pytest.raises(errors.DataError, match=r'name its files: .*/\*.csv'):
    inspection.propose_file(tmp_path, 'inspect')


def test_a_name_with_brackets_is_a_name(tmp_path):
  raw_data.write_csv(tmp_path)
  path = tmp_path / '[a].csv'
  (tmp_path / 'table.csv').rename(path)
  (tmp_path / 'a.csv').write_text('damaged')
  text = inspection.propose_file(path, 'inspect', {'label': 'y'})
  assert "classes=('no', 'yes')" in text


def test_a_reserved_name_is_no_feature(tmp_path):
  raw_data.write_csv(tmp_path)
  path = tmp_path / 'table.csv'
  header, *rows = path.read_text().splitlines()
  lines = [f'{header},mixture', *(f'{row},{i}' for i, row in enumerate(rows))]
  path.write_text('\n'.join(lines))
  text = inspection.propose_file(path, 'inspect', {'label': 'y'})
  assert "'mixture'}" not in text
  assert 'its name is reserved' in text.replace('\n', ' ')


def test_an_empty_path_is_refused():
  with pytest.raises(
    errors.DataError, match='the path of the raw data is empty'
  ):
    inspection.propose_file('', 'inspect')


@pytest.mark.parametrize(
  ('write', 'source'),
  [
    (raw_sources.write_images, 'images'),
    (raw_sources.write_arrays, 'arrays'),
  ],
)
def test_a_table_may_lie_beside_images_and_arrays(tmp_path, write, source):
  raw_data.write_csv(tmp_path)
  write(tmp_path)
  text = inspection.propose_file(tmp_path, 'inspect')
  assert f'source={source!r}' in text


def test_folder_has_no_columns(tmp_path):
  raw_sources.write_images(tmp_path)
  with pytest.raises(errors.ConfigError, match='is no table, so it has no'):
    inspection.propose_file(tmp_path, 'inspect', {'client': 'who'})
