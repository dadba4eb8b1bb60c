"""Builds the API pages from the docstrings with pdoc: `make api`.

python -m docs.api_pages [FOLDER]
"""

import pathlib
import sys

import pdoc
import pdoc.render

_ROOT = pathlib.Path(__file__).parents[1]
_FOLDER = _ROOT / 'build' / 'api'


def module_names() -> list[str]:
  """Returns the modules that are named to pdoc, which adds their submodules.

  `tff_algos` lists its public names in `__all__`, so its rooms are named, too.
  """
  rooms = sorted((_ROOT / 'tff_algos').glob('*/__init__.py'))
  return [
    'tff_algos',
    *(f'tff_algos.{path.parent.name}' for path in rooms),
    'pipelines',
  ]


def build(names: list[str], folder: pathlib.Path) -> pathlib.Path:
  """Writes the pages of modules and of their submodules; returns the index."""
  pdoc.render.configure(docformat='google', show_source=False)
  pdoc.pdoc(*names, output_directory=folder)
  return folder / 'index.html'


def _main() -> None:
  folder = pathlib.Path(sys.argv[1]) if sys.argv[1:] else _FOLDER
  index = build(module_names(), folder)
  from tff_algos.core import tff_compat

  tff_compat.refuse_default_context()  # TFF's own complains at exit.
  print(index)


if __name__ == '__main__':
  _main()
