"""Options common to all models."""

import dataclasses

from tff_algos.models import precision
from tff_algos.models import pretrained as pretrained_lib


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """Options of every model, which may add its own.

  Attributes:
    compute_dtype: `'float32'` or `'bfloat16'`; see `precision.compute_in`.
    pretrained: Whether the weights start from a file.
  """

  compute_dtype: str = dataclasses.field(default='float32', kw_only=True)
  pretrained: pretrained_lib.PretrainedConfig = dataclasses.field(
    default=pretrained_lib.PretrainedConfig(), kw_only=True
  )

  def __post_init__(self):
    precision.check_dtype(self.compute_dtype)
