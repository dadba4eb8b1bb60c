"""Reports as a browser sees them: references, text and pictures."""

import html.parser
import io

import numpy as np
from matplotlib import image


class Page(html.parser.HTMLParser):
  """Collects what a page refers to, its tags and its text."""

  def __init__(self, text):
    super().__init__()
    self.references = []
    self.tags = set()
    self.text = ''
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.tags.add(tag)
    self.references += [
      value for name, value in attrs if name in ('href', 'src', 'srcset')
    ]

  def handle_data(self, data):
    self.text += data


def check_picture(png: bytes) -> tuple[int, int]:
  """Checks that a picture shows something and is not cut off at its edges.

  Returns:
    Its height and width.
  """
  pixels = image.imread(io.BytesIO(png))[..., :3]
  assert 0.005 < np.mean(pixels.min(axis=-1) < 0.9) < 0.9
  for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
    assert (edge == 1).all()
  return pixels.shape[:2]
