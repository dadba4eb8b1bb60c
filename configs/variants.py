"""Variants that name some data and a method: `mnist`, or `mnist_local`."""

from collections.abc import Sequence


def part(
  variant: str, data: Sequence[str], methods: Sequence[str]
) -> tuple[str, str]:
  """Returns which data and which method a variant names.

  Args:
    variant: The data alone, for the first method, or with `_METHOD` behind.
    data: What there is of the one.
    methods: What there is of the other, the default first.

  Raises:
    ValueError: If it names no such data or method; names all that it may be.
  """
  parts = {name: (name, methods[0]) for name in data}
  for method in methods[1:]:
    parts |= {f'{name}_{method}': (name, method) for name in data}
  if variant not in parts:
    raise ValueError(
      f'variant must be one of {", ".join(parts)}, got {variant!r}'
    )
  return parts[variant]
