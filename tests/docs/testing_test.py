"""The figures of docs/testing.md are those that were recorded."""

import re

from tests.testing import programs, suite

_PAGE = (programs.ROOT / 'docs/testing.md').read_text()


def test_cpu_seconds_are_those_recorded():
  for tier in ('test', 'verify'):
    (said,) = re.findall(rf'`make {tier}`: ([\d,]+) CPU seconds', _PAGE)
    total = sum(suite.recorded(tier).values())
    assert int(said.replace(',', '')) == round(total)
