"""Tests with file systems of their own: mounted where nobody else sees them."""

import shutil
import subprocess

import pytest


def need(flags: str) -> None:
  """Skips the test if this user may not mount anything.

  Args:
    flags: How `unshare` is called.
  """
  if not shutil.which('unshare') or subprocess.call(
    ['unshare', flags, 'true'], stderr=subprocess.DEVNULL
  ):
    pytest.skip('needs unshare and its privileges')
