"""The notebooks run from a clean kernel, and print what they show."""

import pytest

from tests.testing import notebooks, programs

_MAX_BYTES = 1_000_000
# Of the fractions that are printed, such as accuracies: another machine rounds
# in another order.
_TOLERANCE = 0.05


@pytest.mark.parametrize('name', notebooks.names())
def test_a_notebook_is_whole(name):
  path = notebooks.FOLDER / f'{name}.ipynb'
  assert path.stat().st_size < _MAX_BYTES
  notebook = notebooks.read(name)
  assert notebook.cells[0].source.startswith('# ')
  code = [cell for cell in notebook.cells if cell.cell_type == 'code']
  assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
  outputs = [one for cell in code for one in cell.outputs]
  assert all(one.output_type != 'error' for one in outputs)
  assert '/tmp' not in path.read_text()
  for page in ('README.md', 'docs/README.md'):
    assert f'notebooks/{path.name}' in (programs.ROOT / page).read_text()


def test_a_notebook_shows_the_present_version_of_its_data_set(digits_dataset):
  """Whoever raises `manifest.CODE_VERSION` executes the notebooks again."""
  (version,) = (digits_dataset / 'dataset' / 'versions').iterdir()
  assert version.name in (notebooks.FOLDER / 'ten_minutes.ipynb').read_text()


@pytest.mark.verify
@pytest.mark.parametrize('name', notebooks.names())
def test_a_notebook_prints_what_it_shows(name):
  expected = notebooks.texts(notebooks.read(name))
  actual = notebooks.texts(notebooks.execute(name))
  for one, other in zip(actual, expected, strict=True):
    notebooks.check_equal(one, other, _TOLERANCE)


def test_texts_that_differ():
  notebooks.check_equal('round  1: 0.50', 'round 1: 0.52', _TOLERANCE)
  with pytest.raises(AssertionError, match='is not'):
    notebooks.check_equal('round 1: 0.50', 'round 2: 0.50', _TOLERANCE)
  with pytest.raises(AssertionError, match='Not equal'):
    notebooks.check_equal('round 1: 0.50', 'round 1: 0.60', _TOLERANCE)
