"""Runs the test files that Bazel names with pytest, as `make test` does."""

import sys

import pytest

if __name__ == '__main__':
  # conftest.py files are links into the checkout; pytest must not follow them.
  sys.exit(pytest.main(['--rootdir=.', '-c', 'pyproject.toml', *sys.argv[1:]]))
