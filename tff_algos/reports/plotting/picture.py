"""Pictures of a report: drawn, and published with the page that shows them."""

import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from matplotlib import figure as figure_lib

from tff_algos.reports.plotting import style

_INDEX = 'index.html'


class Picture(NamedTuple):
  """A picture of a report.

  Attributes:
    name: Its file name.
    caption: How to read it.
    draw: Takes the subject of the report (a run, a sweep, the facts of a
      dataset); returns None if there is nothing to draw of it.
  """

  name: str
  caption: str
  draw: Callable[[Any], figure_lib.Figure | None]


class Drawn(NamedTuple):
  """A picture that was drawn.

  Attributes:
    name: Its file name.
    caption: How to read it.
    png: Content of the file.
  """

  name: str
  caption: str
  png: bytes


def draw_all(pictures: Iterable[Picture], subject: Any) -> list[Drawn]:
  """Draws the pictures that there is something to draw of, in their order."""
  drawn = []
  with style.applied():
    for picture in pictures:
      figure = picture.draw(subject)
      if figure is not None:
        drawn.append(Drawn(picture.name, picture.caption, style.to_png(figure)))
  return drawn


def publish(
  workdir: pathlib.Path, pictures: Iterable[Drawn], page: str
) -> pathlib.Path:
  """Writes `<workdir>/report`: the pictures, and a page that shows them.

  Every file is written beside its place and then moved there, the page last.
  Pictures of an earlier report are removed.

  Args:
    workdir: Exists.
    pictures: That the page refers to by their names.
    page: HTML.

  Returns:
    The path of the page.
  """
  report = workdir / 'report'
  files = {one.name: one.png for one in pictures}
  with tempfile.TemporaryDirectory(prefix='.report-', dir=workdir) as temporary:
    made = pathlib.Path(temporary)
    for name, content in (*files.items(), (_INDEX, page.encode())):
      (made / name).write_bytes(content)
    report.mkdir(exist_ok=True)
    for name in (*files, _INDEX):
      os.replace(made / name, report / name)
  for old in report.glob('*.png'):
    if old.name not in files:
      old.unlink()
  return report / _INDEX
