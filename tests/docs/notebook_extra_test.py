"""What the extra `notebook` installs leaves the environment of the lock as it is."""

import re
import tomllib

from packaging import requirements

from tests.testing import programs


def test_pins_are_those_of_the_lock():
  project = tomllib.loads((programs.ROOT / 'pyproject.toml').read_text())
  extra = [
    requirements.Requirement(one)
    for one in project['project']['optional-dependencies']['notebook']
  ]
  lock = (programs.ROOT / 'requirements.lock').read_text()
  locked = dict(re.findall(r'^([\w.-]+)==(\S+)', lock, re.M))
  # pandas 3 takes NumPy 2, and JupyterLab 4.5 a newer packaging.
  assert {'numpy', 'packaging'} <= {one.name for one in extra}
  for one in extra:
    assert one.specifier, one
    if one.name in locked:
      assert locked[one.name] in one.specifier, one
