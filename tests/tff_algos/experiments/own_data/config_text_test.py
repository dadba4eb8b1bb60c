import ast

from tff_algos.experiments import config_file
from tff_algos.experiments.own_data import config_text, proposal

_PROPOSAL = proposal.Proposal(
  title='data/t.csv',
  source='table',
  model='mlp',
  num_clients=6,
  options=(
    proposal.Option('path', 'data/t.csv', ('it is\nthere',)),
    proposal.Option('label_column', 'y "now"'),
    proposal.Option(
      'feature_columns',
      tuple(f'a rather long name {i}' for i in range(5)),
      tuple(f'evidence {i}' for i in range(5)),
    ),
    proposal.Option(
      'classes',
      tuple(f'a rather long class {i}' for i in range(5)),
      ('of all\nrows',),
    ),
  ),
  dataset={'splits': {'split_by': 'client_time'}, 'seed': 7},
  notes=(
    'A note with """ in it, and so many words that it has two lines or so.',
  ),
)


def test_file_is_the_config_that_was_proposed(tmp_path):
  path = tmp_path / 'config.py'
  path.write_text(config_text.render(_PROPOSAL, 'a --command'))
  config = config_file.load(f'{path}:ifca')
  assert config.algorithm.name == 'ifca'
  assert config.algorithm.cohort_size == 3
  options = config.dataset.source.options
  assert options.label_column == 'y "now"'
  assert options.feature_columns == _PROPOSAL.options[2].value
  assert config.dataset.seed == 7
  # What is not proposed is as in `configs/own_data.py`.
  assert config.dataset.splits.split_by == 'client_time'
  assert config.dataset.splits.test_ratio == 0.3


def test_file_is_for_a_person_to_read():
  text = config_text.render(_PROPOSAL, 'a --command')
  assert ast.get_docstring(ast.parse(text)).startswith(
    'Config of data/t.csv, written by\n\n  a --command\n\nA note with'
  )
  assert '    # it is there\n    path=' in text
  assert "      # evidence 3\n      'a rather long name 3',\n" in text
  assert (
    "    # of all rows\n    classes=(\n      'a rather long class 0',\n" in text
  )
  assert max(map(len, text.splitlines())) <= 88
