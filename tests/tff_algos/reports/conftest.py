"""What tests of pages share."""

import base64

import pytest

_ONE_PIXEL = base64.b64decode(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAA'
  'AABJRU5ErkJggg=='
)


@pytest.fixture
def no_pixels(monkeypatch):
  """Figures are made and not rendered, which takes most of a page's time."""
  from tff_algos.reports.plotting import style

  monkeypatch.setattr(style, 'to_png', lambda figure: _ONE_PIXEL)
