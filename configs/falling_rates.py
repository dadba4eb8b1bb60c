"""Learning rates stay as they are: where experiments start from.

See tff_algos/rounds/lr_schedule.py; docs/architecture.md has how.
"""


def none() -> dict:
  """Returns that no learning rate falls."""
  return {'after_rounds': (), 'factor': 0.1, 'rates': ()}
