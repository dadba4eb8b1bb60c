"""Representations of objects as a table: plain text, and HTML for notebooks."""

import abc
import html
from collections.abc import Mapping


class Described(abc.ABC):
  """Mixin of objects that consist of a title and a few facts."""

  @abc.abstractmethod
  def description(self) -> tuple[str, Mapping[str, object]]:
    """Returns the title, and label -> value of each fact."""

  def __repr__(self) -> str:
    title, facts = self.description()
    listed = ', '.join(f'{label}: {value}' for label, value in facts.items())
    return f'<{title}; {listed}>'

  def _repr_html_(self) -> str:
    """Returns the table that notebooks show."""
    title, facts = self.description()
    rows = ''.join(
      f'<tr><th style="text-align:left">{html.escape(label)}</th>'
      f'<td style="text-align:left">{html.escape(str(value))}</td></tr>'
      for label, value in facts.items()
    )
    return (
      f'<table><caption style="text-align:left"><b>{html.escape(title)}</b>'
      f'</caption>{rows}</table>'
    )
