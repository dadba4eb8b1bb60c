"""Pictures of a report: drawing, and atomic publishing with their page."""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from matplotlib import figure as figure_lib

from tff_algos.core import durable, folder_lock
from tff_algos.reports.plotting import style

_INDEX = 'index.html'
_TEMPORARY = '.report-'
# Many times what publishing of pictures that are drawn takes.
_PATIENCE_SECONDS = 60.0


class Picture(NamedTuple):
  """A picture of a report.

  Attributes:
    name: File name.
    caption: Caption, which explains the picture; a function of the subject if
      it depends on what the picture shows.
    draw: Function of the subject of the report (a run, a sweep, the facts of a
      dataset); returns None if the picture does not apply to it.
  """

  name: str
  caption: str | Callable[[Any], str]
  draw: Callable[[Any], figure_lib.Figure | None]


class Drawn(NamedTuple):
  """A rendered picture.

  Attributes:
    name: File name.
    caption: Caption, which explains the picture.
    png: Content of the file.
  """

  name: str
  caption: str
  png: bytes


def caption(picture: Picture, subject: Any) -> str:
  """Returns the caption of a picture for a subject."""
  if callable(picture.caption):
    return picture.caption(subject)
  return picture.caption


def draw_all(pictures: Iterable[Picture], subject: Any) -> list[Drawn]:
  """Draws all pictures that apply to a subject, in their order."""
  drawn = []
  with style.applied():
    for picture in pictures:
      figure = picture.draw(subject)
      if figure is not None:
        text = caption(picture, subject)
        drawn.append(Drawn(picture.name, text, style.to_png(figure)))
  return drawn


def publish(
  workdir: pathlib.Path, pictures: Iterable[Drawn], page: str
) -> pathlib.Path:
  """Writes `<workdir>/report`: the pictures, and a page that shows them.

  Every file is written to a temporary file and renamed, the page last. Pictures
  of an earlier report are removed, and what a killed process left.

  Args:
    workdir: Existing folder.
    pictures: Pictures that the page refers to by name.
    page: HTML.

  Returns:
    The path of the page.

  Raises:
    DataError: If a folder stands where a file belongs, or the reverse.
    WorkdirBusyError: If another process publishes it for a minute.
  """
  report = workdir / 'report'
  files = {one.name: one.png for one in pictures}
  durable.make_folder(report)
  busy = f'another process is writing to {report}'
  with folder_lock.exclusive(report, busy, _PATIENCE_SECONDS):
    for abandoned in workdir.glob(f'{_TEMPORARY}*/'):
      shutil.rmtree(abandoned)
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=workdir) as made:
      for name, content in (*files.items(), (_INDEX, page.encode())):
        pathlib.Path(made, name).write_bytes(content)
      for name in (*files, _INDEX):
        durable.check_file_place(report / name)
        os.replace(pathlib.Path(made, name), report / name)
    for old in report.glob('*.png'):
      if old.name not in files and old.is_file():
        old.unlink()
  return report / _INDEX
