"""What is drawn of a subject, and what a published report consists of."""

import io

import pytest
from matplotlib import figure as figure_lib
from matplotlib import image

from tff_algos.core import errors, folder_lock
from tff_algos.reports.plotting import picture


def _draw(title):
  return figure_lib.Figure() if title else None


_PICTURES = (
  picture.Picture('a.png', 'first', lambda title: _draw(title)),
  picture.Picture(
    'b.png',
    lambda title: f'second of {title}',
    lambda title: _draw(title == 'both'),
  ),
)


@pytest.mark.parametrize(
  ('subject', 'names'),
  [('both', ['a.png', 'b.png']), ('one', ['a.png']), ('', [])],
)
def test_only_pictures_with_something_to_draw_are_drawn(subject, names):
  drawn = picture.draw_all(_PICTURES, subject)
  assert [one.name for one in drawn] == names
  captions = {'a.png': 'first', 'b.png': f'second of {subject}'}
  for one in drawn:
    assert one.caption == captions[one.name]
    assert image.imread(io.BytesIO(one.png)).size


def test_a_report_is_replaced_and_other_files_stay(tmp_path):
  report = tmp_path / 'report'
  first = [picture.Drawn(name, '', b'1') for name in ('a.png', 'b.png')]
  assert picture.publish(tmp_path, first, 'a b') == report / 'index.html'
  (report / 'notes.txt').write_text('mine')
  (tmp_path / '.report-killed').mkdir()
  (tmp_path / '.report-killed' / 'a.png').write_bytes(b'')
  picture.publish(tmp_path, [picture.Drawn('b.png', '', b'2')], 'ä')
  assert {path.name: path.read_bytes() for path in report.iterdir()} == {
    'b.png': b'2',
    'index.html': 'ä'.encode(),
    'notes.txt': b'mine',
  }
  assert list(tmp_path.iterdir()) == [report]


def test_what_is_not_of_a_report_stays(tmp_path):
  (tmp_path / 'report' / 'x.png').mkdir(parents=True)
  (tmp_path / '.report-mine').write_text('')
  picture.publish(tmp_path, [picture.Drawn('b.png', '', b'2')], 'x')
  assert {path.name for path in tmp_path.iterdir()} == {
    *('report', '.report-mine')
  }
  assert (tmp_path / 'report' / 'x.png').is_dir()


def test_pictures_that_another_process_publishes_stay(tmp_path, monkeypatch):
  monkeypatch.setattr(picture, '_PATIENCE_SECONDS', 0.0)
  (tmp_path / 'report').mkdir()
  (tmp_path / '.report-live').mkdir()
  with (
    folder_lock.exclusive(tmp_path / 'report', ''),
    pytest.raises(errors.WorkdirBusyError, match='writing to .*report. Wait'),
  ):
    picture.publish(tmp_path, [picture.Drawn('b.png', '', b'2')], 'x')
  assert (tmp_path / '.report-live').is_dir()
  assert not list((tmp_path / 'report').iterdir())


def test_a_failure_leaves_the_old_report(tmp_path):
  picture.publish(tmp_path, [picture.Drawn('a.png', '', b'1')], 'old')
  with pytest.raises(TypeError):
    picture.publish(tmp_path, [picture.Drawn('a.png', '', None)], 'new')
  report = tmp_path / 'report'
  assert (report / 'a.png').read_bytes() == b'1'
  assert (report / 'index.html').read_text() == 'old'
  assert list(tmp_path.iterdir()) == [report]
