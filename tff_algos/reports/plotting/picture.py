"""Pictures of a report: drawing, and atomic publishing with their page."""

import contextlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from matplotlib import figure as figure_lib

from tff_algos.core import durable
from tff_algos.reports.plotting import style

_INDEX = 'index.html'
_TEMPORARY = '.report-'
# Longest publishing of pictures that are drawn.
_MAX_SECONDS = 3600


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
  of an earlier report are removed, and what a killed process left an hour ago.

  Args:
    workdir: Existing folder.
    pictures: Pictures that the page refers to by name.
    page: HTML.

  Returns:
    The path of the page.

  Raises:
    DataError: If a folder stands where a file belongs, or the reverse.
  """
  report = workdir / 'report'
  files = {one.name: one.png for one in pictures}
  _remove_abandoned(workdir)
  with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=workdir) as temporary:
    made = pathlib.Path(temporary)
    for name, content in (*files.items(), (_INDEX, page.encode())):
      (made / name).write_bytes(content)
    durable.make_folder(report)
    for name in (*files, _INDEX):
      durable.check_file_place(report / name)
      os.replace(made / name, report / name)
  for old in report.glob('*.png'):
    if old.name not in files and old.is_file():
      old.unlink(missing_ok=True)
  return report / _INDEX


def _remove_abandoned(workdir: pathlib.Path) -> None:
  """Removes temporary folders of killed processes, not those of live ones."""
  oldest = time.time() - _MAX_SECONDS
  for folder in workdir.glob(f'{_TEMPORARY}*/'):
    with contextlib.suppress(FileNotFoundError):
      if folder.stat().st_mtime < oldest:
        shutil.rmtree(folder)
