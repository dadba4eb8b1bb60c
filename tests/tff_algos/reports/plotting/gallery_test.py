"""Pictures as figures: which are drawn, and how a notebook shows them."""

import base64
import re

import pytest

from tff_algos.core import errors
from tff_algos.reports.plotting import gallery, picture, style


def _draw(subject):
  return style.new_figure(1.0, subject)


_PICTURES = (
  picture.Picture('first.png', 'Caption <1>.', _draw),
  picture.Picture('second.png', lambda subject: f'Of {subject}.', _draw),
  picture.Picture('third.png', 'Never.', lambda subject: None),
)


def test_all_that_apply_are_drawn_in_their_order():
  drawn = gallery.draw(_PICTURES, 'a run')
  assert list(drawn) == ['first', 'second']
  assert drawn.captions == {'first': 'Caption <1>.', 'second': 'Of a run.'}
  assert drawn['first'].get_suptitle() == 'a run'


def test_named_pictures_are_drawn_alone():
  assert list(gallery.draw(_PICTURES, 'a run', ['second'])) == ['second']


def test_html_has_the_pixels_of_the_report():
  drawn = gallery.draw(_PICTURES[:1], 'a run')
  page = drawn._repr_html_()
  (png,) = re.findall('base64,([^"]+)"', page)
  (expected,) = picture.draw_all(_PICTURES[:1], 'a run')
  assert base64.b64decode(png) == expected.png
  assert 'Caption &lt;1&gt;.' in page


def test_names_that_are_refused():
  with pytest.raises(errors.DataError, match="no picture 'x'.*first, second"):
    gallery.draw(_PICTURES, 'a run', ['x'])
  with pytest.raises(errors.DataError, match="'third' does not apply"):
    gallery.draw(_PICTURES, 'a run', ['third'])
