"""Type aliases of the values that pass between stages."""

from typing import Any, TypeAlias

from numpy import typing as npt

# A nested structure (dicts, tuples, named tuples) whose leaves are tensors, or
# NumPy arrays on the host. Any: TensorFlow's `nest` has no type that would say
# which, and a stage reads the fields of its own states by name.
Structure: TypeAlias = Any

# One leaf of a structure that is, in turn, all three: a tensor in a graph, a
# NumPy array on the host, and a `tf.TensorSpec` in the type of a phase.
Leaf: TypeAlias = Any

# An array of any shape; shape and dtype stand in the docstring. NumPy 1.25's
# functions return another dtype in their annotations than in fact too often
# for it to be part of the type.
Array: TypeAlias = npt.NDArray[Any]
