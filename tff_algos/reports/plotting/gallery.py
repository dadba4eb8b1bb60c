"""Pictures of a report as figures; a notebook shows them with captions."""

import base64
import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib import figure as figure_lib

from tff_algos.core import errors
from tff_algos.reports.plotting import picture, style


class Gallery(Mapping[str, figure_lib.Figure]):
  """Name -> figure, in the order of the report.

  Attributes:
    captions: Name -> caption, which explains the picture.
  """

  def __init__(
    self, figures: Mapping[str, figure_lib.Figure], captions: Mapping[str, str]
  ):
    """Takes figures and captions of the same names."""
    self._figures = dict(figures)
    self.captions = dict(captions)

  def __getitem__(self, name: str) -> figure_lib.Figure:
    return self._figures[name]

  def __iter__(self) -> Iterator[str]:
    return iter(self._figures)

  def __len__(self) -> int:
    return len(self._figures)

  def __repr__(self) -> str:
    return f'<pictures: {", ".join(self)}>'

  def _repr_html_(self) -> str:
    """Returns all pictures with their captions."""
    return ''.join(
      f'<figure><img style="max-width:100%" alt="{html.escape(name)}" '
      f'src="data:image/png;base64,{self._base64(name)}">'
      f'<figcaption>{html.escape(self.captions[name])}</figcaption></figure>'
      for name in self
    )

  def _base64(self, name: str) -> str:
    with style.applied():
      png = style.to_png(self[name])
    return base64.b64encode(png).decode()


def draw(
  pictures: Sequence[picture.Picture], subject: Any, names: Sequence[str] = ()
) -> Gallery:
  """Draws some pictures of a report.

  Args:
    pictures: All pictures of the report.
    subject: Subject of the report, such as a run.
    names: Names without `.png`; none for all that apply.

  Raises:
    DataError: If a name is unknown, or does not apply to the subject.
  """
  known = {one.name.removesuffix('.png'): one for one in pictures}
  for name in names:
    if name not in known:
      raise errors.DataError(
        f'there is no picture {name!r}; the names are: {", ".join(known)}'
      )
  figures: dict[str, figure_lib.Figure] = {}
  captions: dict[str, str] = {}
  with style.applied():
    for name in names or known:
      figure = known[name].draw(subject)
      if figure is not None:
        figures[name] = figure
        captions[name] = picture.caption(known[name], subject)
      elif names:
        raise errors.DataError(
          f'the picture {name!r} does not apply to this run, which lacks what '
          'it shows; without names, plot draws all that apply'
        )
  return Gallery(figures, captions)
