"""Tables of global filter atoms and of distances of clients' own atoms.

Chen and Qiu (2025), arXiv:2503.08652, sections 3 and 4.1.
"""

from typing import Any

import numpy as np

from tff_algos.core import model as model_lib
from tff_algos.experiments import session
from tff_algos.export import client_states
from tff_algos.numerics import factored_weights


def atom_rows(weights: model_lib.Weights) -> list[dict[str, Any]]:
  """Returns a row for each atom of each layer.

  Its columns: `layer`, `atom`, the norm of its coefficients (its influence),
  and its `height` x `width` entries, row by row.
  """
  rows = []
  for layer in factored_weights.factored_layers(weights):
    atoms, coefficients = map(
      np.asarray, factored_weights.take_factors(weights, layer)
    )
    height, width, num_atoms = atoms.shape
    rows += [
      {
        'layer': layer,
        'atom': atom,
        'coefficient_norm': float(np.linalg.norm(coefficients[atom])),
        'height': height,
        'width': width,
        **{
          f'entry_{place}': float(entry)
          for place, entry in enumerate(atoms[..., atom].flat)
        },
      }
      for atom in range(num_atoms)
    ]
  return rows


def own_rows(
  opened: session.Session, server_state: Any
) -> list[dict[str, Any]]:
  """Returns a row for each client: distances of its atoms from the global ones.

  Its columns: `client_id`, and `distance_<layer>`, the Euclidean distance; 0
  for a client that never trained its own atoms and uses the global ones.

  Args:
    opened: Session; its store holds the client states that belong to
      `server_state`.
    server_state: Server state; its `model_weights` are the global model.
  """
  weights = server_state.model_weights
  names = [f'{one}/atoms' for one in factored_weights.factored_layers(weights)]
  rows = []
  for index, client_id in enumerate(opened.source.population.client_ids):
    client_state = client_states.state_of(opened.store.load, index)
    own = opened.algorithm.personalized_weights(
      server_state, client_state, index
    )
    distances = {
      f'distance_{name.removesuffix("/atoms")}': float(
        np.linalg.norm(np.asarray(own[name]) - np.asarray(weights[name]))
      )
      for name in names
    }
    rows.append({'client_id': client_id, **distances})
  return rows
