"""Writes the atoms of a network that never was."""

import pathlib

import numpy as np

from tff_algos.core import seeds

# Layer -> (side of its kernels, number of atoms).
LAYERS = {'conv_0': (5, 4), 'conv_1': (3, 9)}


def write(workdir: pathlib.Path, num_clients: int) -> None:
  """Writes what binaries.factors does; every third client has own atoms.

  Atom a of a layer holds 0, 1, ... in the order of its entries, times a; its
  coefficients have the norm a. Client c is c away in the first layer, twice that
  in the second.
  """
  folder = workdir / 'evaluation'
  most = max(side**2 for side, _ in LAYERS.values())
  entries = [f'entry_{place}' for place in range(most)]
  lines = [','.join(['layer,atom,coefficient_norm,height,width', *entries])]
  for layer, (side, num_atoms) in LAYERS.items():
    for atom in range(num_atoms):
      values = [f'{atom * place}' for place in range(side**2)]
      blank = [''] * (most - side**2)
      start = [layer, f'{atom}', f'{atom}', f'{side}', f'{side}']
      lines.append(','.join([*start, *values, *blank]))
  (folder / 'atoms.csv').write_text('\n'.join(lines) + '\n')
  distances = np.arange(num_clients) * (np.arange(num_clients) % 3 == 0)
  order = seeds.numpy_generator(0, 'fake_atoms').permutation(num_clients)
  rows = [f'client_{c:04d},{distances[c]},{2 * distances[c]}' for c in order]
  header = ','.join(['client_id', *(f'distance_{one}' for one in LAYERS)])
  (folder / 'own_atoms.csv').write_text('\n'.join([header, *rows]) + '\n')
