"""A package that is not installed is an error that names its extra."""

import pytest

from tff_algos.core import errors, extras


def test_the_extra_is_named():
  with (
    pytest.raises(
      errors.UserError,
      match=r"A frame needs the package 'no_such_package'.*tff-algos\[notebook",
    ),
    extras.importing('notebook', 'A frame'),
  ):
    import no_such_package  # noqa: F401


def test_other_errors_stay_what_they_are():
  with pytest.raises(ValueError, match='bug'), extras.importing('x', 'y'):
    raise ValueError('bug')
