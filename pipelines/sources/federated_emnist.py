"""Source of Federated EMNIST by writer, in TensorFlow Federated's format.

PPFL (arXiv 2310.14337, section on practical data) takes the writers with at
least 100 training and 25 test examples: `min_train=100, min_test=25`.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pipelines.sources import base, client_database
from tff_algos.core import checks


@dataclasses.dataclass(frozen=True)
class Options(client_database.Options):
  """Options of Federated EMNIST.

  Attributes:
    num_classes: 62, or 10 for the database of digits alone.
  """

  file: str = 'emnist_all.sqlite'
  num_classes: int = 62

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_one_of('num_classes', self.num_classes, (10, 62))


class FederatedEmnist(client_database.ClientDatabase):
  """28x28 images, upright: 0 is ink and 1 is paper."""

  def features(self) -> base.Features:
    """Returns float32 images with one channel, as they are stored."""
    return base.float_image_features((28, 28, 1), self._options.num_classes)

  def _examples(self, features: Mapping[str, Any]) -> Iterator[base.RawExample]:
    pixels = features['pixels'].float_list.value
    label = features['label'].int64_list.value
    if len(pixels) != 28 * 28 or len(label) != 1:
      yield base.malformed(
        f'there are {len(pixels)} pixels and {len(label)} labels, not 784 and 1'
      )
      return
    yield base.RawExample(
      x=np.array(pixels, np.float32).reshape(28, 28, 1), y=label[0]
    )
