"""Rendering of the HTML templates, which share one layout."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jinja2


def render(template: str, **values: Any) -> str:
  """Returns a page.

  Args:
    template: Path of a `.jinja` file below `tff_algos/reports`.
    **values: Values of its variables; text is escaped.
  """
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parents[1]),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  return environment.get_template(template).render(values)


def flatten(
  section: Mapping[str, Any], prefix: str = ''
) -> list[tuple[str, str]]:
  """Returns (dotted key, value as text) of a nested config, in its order."""
  rows = []
  for key, value in section.items():
    if isinstance(value, Mapping) and value:
      rows += flatten(value, f'{prefix}{key}.')
    else:
      rows.append((f'{prefix}{key}', str(value)))
  return rows
