"""The rounds that `docs/rounds.md` prints are those of the code.

`python -m tests.docs.rounds_test` writes them anew.
"""

import pytest

from configs import digits
from tests.testing import programs
from tff_algos.algorithms import registry
from tff_algos.experiments import experiment, round_description

_PAGE = programs.ROOT / 'docs' / 'rounds.md'
_START = '\n## brain_torrent\n'


def _config(name):
  config = digits.get_config(name, 'smoke')
  config.name = name
  if name == 'filter_decomposition':
    with config.unlocked():
      config.model = {'name': 'small_cnn', 'decomposition': {'num_atoms': 3}}
      # Small images are too small for it; the files are not read.
      source = {'name': 'emnist', 'options': {'folder': '', 'split': 'mnist'}}
      config.dataset.source = source
  return experiment.parse(config)


def _rounds():
  return ''.join(
    f'\n## {name}\n\n```\n{round_description.describe(_config(name))}\n```\n'
    for name in sorted(registry.ALGORITHMS)
  )


@pytest.mark.verify
def test_the_page_has_the_rounds_of_all_algorithms():
  _, start, rounds = _PAGE.read_text().partition(_START)
  assert start + rounds == _rounds(), 'run python -m tests.docs.rounds_test'


if __name__ == '__main__':
  introduction, _, _ = _PAGE.read_text().partition(_START)
  _PAGE.write_text(introduction + _rounds())
