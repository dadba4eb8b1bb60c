"""Nobody lies, and means are plain: where experiments start from.

See docs/robustness.md for what there is beside it.
"""


def attack() -> dict:
  """Returns that all clients are honest."""
  return {
    'name': 'none',
    'fraction': 0.0,
    'client_ids': (),
    'space': 'update',
    'minimum_scale': 0.5,
    'noise_deviation': 1.0,
    'num_deviations': 0.0,
    'ipm_factor': 0.5,
    'perturbation': 'std',
    'accepted_share': 0.4,
  }


def aggregation() -> dict:
  """Returns the plain mean of those who can have a robust rule in its place."""
  return {
    'rule': 'mean',
    'num_byzantine': 0,
    'trim_fraction': 0.1,
    'num_selected': 0,
    'clipping_radius': 1.0,
    'num_iterations': 16,
    'smoothing': 1e-6,
    'committee_share': 0.4,
    'accepted_share': 0.4,
    'mixes_nearest_neighbors': False,
  }
