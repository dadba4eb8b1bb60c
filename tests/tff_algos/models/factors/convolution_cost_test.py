"""Tests of the number of multiplications of a convolution."""

from tff_algos.models.factors import convolution_cost


def test_second_layer_of_lenet():
  """64 to 64 channels, 5x5, 10x10 outputs, 9 atoms: 10.24 and 5.13 million an
  image, and 0.92 million a batch.
  """
  cost = convolution_cost.count((5, 5, 9), (9, 64, 64), (10, 10))
  assert cost.plain == 10_240_000
  assert cost.rebuilding == 921_600
  assert cost.atoms == 64 * 9 * 25 * 100
  assert cost.mixing == 64 * 9 * 64 * 100
  assert cost.atoms + cost.mixing == 5_126_400


def test_the_faster_way_depends_on_the_batch():
  """One with an atom counts 9, so 130 against 100, and 90 a batch."""
  cost = convolution_cost.Multiplications(100, 90, 10, 40)
  assert not cost.two_layers_are_faster(None)
  assert not cost.two_layers_are_faster(10)
  assert cost.two_layers_are_faster(2)


def test_few_atoms_of_many_pixels_are_faster_by_two_layers():
  cost = convolution_cost.count((7, 7, 3), (3, 64, 64), (8, 8))
  assert cost.two_layers_are_faster(None)
