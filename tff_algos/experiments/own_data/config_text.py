"""Config file of a proposal, for a person to edit."""

import textwrap
from collections.abc import Mapping, Sequence

from tff_algos.experiments.own_data import proposal as proposal_lib

_WIDTH = 88
_INDENT = ' ' * 4


def render(proposal: proposal_lib.Proposal, command: str) -> str:
  """Returns a config file, which `config_file.load` reads.

  Args:
    proposal: The proposal.
    command: Command line that wrote it.
  """
  described = [
    f'Config of {proposal.title}, written by',
    f'  {command}',
    *proposal.notes,
    'Check it and change what is wrong; `python -m binaries.describe '
    f'--source={proposal.source}` lists all options. A variant is an '
    'algorithm, such as :ifca.',
  ]
  lines = [
    f'r"""{_docstring(described)}',
    '"""',
    '',
    'import ml_collections',
    '',
    'from configs import own_data',
    '',
    '',
    "def get_config(algorithm: str = 'fed_avg') -> ml_collections.ConfigDict:",
    '  """Returns the config with one of `own_data.ALGORITHMS`."""',
    '  config = own_data.get_config(',
    f'    algorithm, source={proposal.source!r}, model={proposal.model!r}, '
    f'num_clients={proposal.num_clients}',
    '  )',
    f'  config.name = {proposal.title!r}',
    '  config.dataset.source.options.update(',
  ]
  for option in proposal.options:
    lines += _render_option(option)
  lines.append('  )')
  if proposal.dataset:
    lines += [
      '  config.dataset.update(',
      *(f'{_INDENT}{k}={v!r},' for k, v in proposal.dataset.items()),
      '  )',
    ]
  return '\n'.join([*lines, '  return config', ''])


def _docstring(paragraphs: Sequence[str]) -> str:
  """Returns paragraphs that fit the width and end no docstring."""
  filled = [
    one if one.startswith(' ') else textwrap.fill(_one_line(one), _WIDTH)
    for one in paragraphs
  ]
  return '\n\n'.join(filled).replace('"""', "'''")


def _render_option(option: proposal_lib.Option) -> list[str]:
  """Returns the lines of an option, the evidence before it or each item."""
  is_list = isinstance(option.value, tuple) and len(
    f'{option.key}={option.value!r},'
  ) > _WIDTH - len(_INDENT)
  comments = [f'{_INDENT}# {_one_line(line)}' for line in option.evidence]
  if not is_list:
    return [*comments, f'{_INDENT}{option.key}={option.value!r},']
  items = [
    f'{_INDENT}  {dict(one) if isinstance(one, Mapping) else one!r},'
    for one in option.value
  ]
  opening = f'{_INDENT}{option.key}=('
  if len(comments) == len(items):
    lines = [opening]
    for comment, item in zip(comments, items, strict=True):
      lines += [f'  {comment}', item]
  else:
    lines = [*comments, opening, *items]
  return [*lines, f'{_INDENT}),']


def _one_line(text: str) -> str:
  return ' '.join(text.split())
