"""The table of `docs/tff.md` is that of the code, and its examples are built.

`python -m tests.docs.tff_test` writes the table anew.
"""

import re

from tests.testing import programs, tiny_convolution, toys
from tff_algos.algorithms import registry
from tff_algos.rounds import aggregation, learning_process

_PAGE = programs.ROOT / 'docs' / 'tff.md'
_TABLE = re.compile(r'\| algorithm \|.*\n(?:\|.*\n)+')
# Of algorithms that a logistic regression is too simple for.
_MODELS = {
  'fed_pac': toys.mlp,
  'filter_decomposition': tiny_convolution.build,
  'partial_fed_avg': toys.mlp,
}


def _algorithms():
  """Yields each algorithm with its default options, in alphabetical order."""
  for name in sorted(registry.ALGORITHMS):
    section = registry.parse_config({'name': name})
    model = _MODELS.get(name, toys.logistic)()
    yield registry.build_algorithm(section, model)


def _collected(algorithm):
  """Returns the fields that the server receives client by client, as text."""
  fields = {
    phase.name: [
      f'`{field}`'
      for field, aggregator in phase.aggregation.items()
      if isinstance(aggregator, aggregation.Collect)
    ]
    for phase in algorithm.phases.values()
  }
  phases = [
    f'{name}: {", ".join(collected)}'
    for name, collected in fields.items()
    if collected
  ]
  return '; '.join(phases)


def _table():
  rows = [
    f'| `{one.name}` | {collected} |\n'
    for one in _algorithms()
    if (collected := _collected(one))
  ]
  head = '| algorithm | results that are collected |\n'
  return ''.join([head, '|---|---|\n', *rows])


def test_the_page_has_the_table():
  assert _TABLE.findall(_PAGE.read_text()) == [_table()]


def test_learning_processes_are_those_that_the_page_names():
  accepted = [
    one.name for one in _algorithms() if not learning_process.refusal(one)
  ]
  assert accepted == ['fed_avg', 'filter_decomposition']
  said = ' '.join(_PAGE.read_text().split())
  assert (
    'That is `fed_avg`, with the options of FedProx and FedOpt, and' in said
  )
  assert 'and filter decomposition with it as host.' in said


def test_algorithm_and_factories_of_the_page_are_built():
  """The source, too; the other examples need TFF's own context."""
  blocks = re.findall(r'^```python\n(.*?)^```', _PAGE.read_text(), re.M | re.S)
  names = {}
  for block in blocks:
    if 'build_model(' in block or 'with_aggregators(' in block:
      exec(compile(block, 'docs/tff.md', 'exec'), names)
  assert len(names['source'].population.client_ids) == 6
  assert names['clipped'].name == 'fed_avg'


if __name__ == '__main__':
  _PAGE.write_text(_TABLE.sub(_table(), _PAGE.read_text()))
