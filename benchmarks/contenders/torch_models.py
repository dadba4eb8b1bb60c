"""The networks of the workloads in PyTorch; for contenders that use it.

Weights keep PyTorch's layout inside, and the workload's outside.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import nn

from benchmarks import workload as workload_lib

_CHANNELS = (32, 64)
_KERNEL_SIZE = 5
_CNN_HIDDEN_SIZE = 512


class _Flatten(nn.Module):
  """Flattens `[batch, channels, height, width]`, channels last as elsewhere."""

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1).flatten(1)


def build_network(workload: workload_lib.Workload) -> nn.Sequential:
  """Returns logits of images `[batch, channels, height, width]`.

  Its parameters come in the order of the workload's weights.
  """
  height, width, channels = workload.input_shape
  features = height * width * channels
  num_classes = workload.num_classes
  if workload.model == 'linear':
    return nn.Sequential(_Flatten(), nn.Linear(features, num_classes))
  layers: list[nn.Module] = []
  hidden_size = workload.hidden_size
  if workload.model == 'cnn':
    for size in _CHANNELS:
      layers += [
        nn.Conv2d(channels, size, _KERNEL_SIZE, padding='same'),
        nn.ReLU(),
        nn.MaxPool2d(2),
      ]
      channels = size
    features = height * width * channels // 16
    hidden_size = _CNN_HIDDEN_SIZE
  return nn.Sequential(
    *layers,
    _Flatten(),
    nn.Linear(features, hidden_size),
    nn.ReLU(),
    nn.Linear(hidden_size, num_classes),
  )


def images(x: np.ndarray) -> np.ndarray:
  """Returns `[..., height, width, channels]` with the channels in front."""
  return np.ascontiguousarray(np.moveaxis(x, -1, -3))


def load(network: nn.Module, weights: Iterable[np.ndarray]) -> None:
  """Gives a network weights in the workload's layout, in its order."""
  with torch.no_grad():
    for own, leaf in zip(network.parameters(), weights, strict=True):
      axes = (3, 2, 0, 1) if leaf.ndim == 4 else None
      own.copy_(torch.from_numpy(leaf.transpose(axes).copy()))


def named_weights(
  names: Iterable[str], parameters: Iterable[torch.Tensor]
) -> Mapping[str, np.ndarray]:
  """Returns a network's weights in the workload's layout.

  Args:
    names: The workload's, in its order.
    parameters: The network's.
  """
  weights = {}
  for name, own in zip(names, parameters, strict=True):
    axes = (2, 3, 1, 0) if own.ndim == 4 else None
    weights[name] = own.detach().numpy().transpose(axes).copy()
  return weights
