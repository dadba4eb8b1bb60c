"""Number of multiplications of a convolution, plain or decomposed.

Counted per image with H x W output pixels, for c inputs, c' outputs, filters of
k x k pixels and m atoms (Chen and Qiu 2025, section 3):

  plain          c c' k^2 H W
  rebuilt        as many, and c c' m k^2 once per batch to rebuild the kernel
  two layers     c m k^2 H W to convolve every channel with every atom, and
                 c m c' H W to mix the results
"""

import math
from typing import NamedTuple

# Time per multiplication of a depthwise over that of an ordinary convolution in
# TensorFlow 2.14 on a CPU, with gradients: 28e-8 ms against 3.1e-8 ms for 64
# channels; for 32 and fewer the ratio is nearer to 4.
_DEPTHWISE_SLOWDOWN = 9


class Multiplications(NamedTuple):
  """Multiplications of one layer.

  Attributes:
    plain: An ordinary convolution, per image.
    rebuilding: Rebuilding the kernel, per batch.
    atoms: The first of two layers, every channel with every atom, per image.
    mixing: The second of two layers, per image.
  """

  plain: int
  rebuilding: int
  atoms: int
  mixing: int

  def two_layers_are_faster(self, batch_size: int | None) -> bool:
    """Returns whether two layers take less time than rebuilding the kernel.

    A multiplication of a depthwise convolution takes several times as long as
    one of an ordinary convolution, which is a matrix product.

    Args:
      batch_size: Images per batch; None if unknown, taken as a large batch.
    """
    per_image = _DEPTHWISE_SLOWDOWN * self.atoms + self.mixing
    rebuilding = self.rebuilding / batch_size if batch_size else 0
    return per_image < self.plain + rebuilding


def count(
  atoms_shape: tuple[int, ...],
  coefficients_shape: tuple[int, ...],
  output_sides: tuple[int, int],
) -> Multiplications:
  """Returns the multiplications of one layer.

  Args:
    atoms_shape: `(height, width, num_atoms)`.
    coefficients_shape: `(num_atoms, inputs, outputs)`.
    output_sides: Height and width of the layer's output.
  """
  filter_pixels = math.prod(atoms_shape[:2])
  num_atoms, inputs, outputs = coefficients_shape
  positions = math.prod(output_sides)
  kernel_size = filter_pixels * inputs * outputs
  return Multiplications(
    plain=kernel_size * positions,
    rebuilding=kernel_size * num_atoms,
    atoms=inputs * num_atoms * filter_pixels * positions,
    mixing=inputs * num_atoms * outputs * positions,
  )
