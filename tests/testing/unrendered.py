"""Pages whose pictures are not rendered, or not even drawn.

Drawing and rendering take most of a page's time.

As a program it runs another one without rendering:

    python -m tests.testing.unrendered binaries.sweep --config=...
"""

import base64
import contextlib
import runpy
import sys

import pytest

_ONE_PIXEL = base64.b64decode(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAA'
  'AABJRU5ErkJggg=='
)


@contextlib.contextmanager
def pictures():
  """Makes every picture one pixel inside the block."""
  from tff_algos.reports.plotting import style

  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(style, 'to_png', lambda figure: _ONE_PIXEL)
    yield


@contextlib.contextmanager
def blank_pictures():
  """Leaves out the drawing, too: every picture is one pixel, without caption.

  Of pictures that would not apply, too.
  """
  from tff_algos.reports.plotting import picture

  def draw_none(pictures, unused_subject):
    return [picture.Drawn(one.name, '', _ONE_PIXEL) for one in pictures]

  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(picture, 'draw_all', draw_none)
    yield


if __name__ == '__main__':
  del sys.argv[0]
  with pictures():
    runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)
