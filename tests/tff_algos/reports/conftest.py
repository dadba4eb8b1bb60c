"""What tests of pages share."""

import pytest

from tests.testing import unrendered


@pytest.fixture
def no_pixels():
  """Figures are made and not rendered."""
  with unrendered.pictures():
    yield
