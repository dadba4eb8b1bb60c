"""Examples of one client for NumPy, PyTorch and tf.data."""

import functools
from typing import Any

from tff_algos.core.structures import Array
from tff_algos.data import dataset as dataset_lib
from tff_algos.data import schema as schema_lib


class ClientExamples:
  """Examples of one client and split, read at the first use.

  PyTorch takes it as a map-style dataset, without a class of its own:
  `torch.utils.data.DataLoader(client, batch_size=32, shuffle=True)` gives
  batches of tensors x and y.

  Attributes:
    client_id: The client's id.
    split: `'train'`, `'validation'` or `'test'`.
  """

  def __init__(
    self, dataset: dataset_lib.FederatedDataset, client_id: str, split: str
  ) -> None:
    """Reads nothing yet.

    Args:
      dataset: The dataset, open until the examples have been read.
      client_id: A client, participating or not.
      split: `'train'`, `'validation'` or `'test'`.
    """
    self._dataset = dataset
    self.client_id = client_id
    self.split = split

  @functools.cached_property
  def _examples(self) -> schema_lib.Examples:
    return self._dataset.examples(self.client_id, self.split)

  @property
  def x(self) -> Array:
    """Returns the features, float32 or int32 `[n, *x_shape]`."""
    return self._examples.x

  @property
  def y(self) -> Array:
    """Returns the labels, int32 or float32 `[n, *y_shape]`."""
    return self._examples.y

  def __len__(self) -> int:
    """Returns n."""
    return self._examples.num_examples

  def __getitem__(self, index: int) -> tuple[Any, Any]:
    """Returns features and label of an example.

    Raises:
      IndexError: If there is none.
    """
    return self.x[index], self.y[index]

  def __getstate__(self) -> dict[str, Any]:
    # A worker of a DataLoader is sent the examples, not the open dataset.
    return {
      'client_id': self.client_id,
      'split': self.split,
      '_examples': self._examples,
    }

  def to_tf(self) -> Any:
    """Returns a `tf.data.Dataset` of (x, y), one example each."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((self.x, self.y))
