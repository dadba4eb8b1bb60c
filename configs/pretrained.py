"""The section of configs that says where a network starts."""


def none() -> dict:
  """Returns the section of random weights; docs/pretrained.md has others."""
  return {'file': '', 'fresh': ()}
