"""Thresholds of the gate between a trained run and its release."""

import dataclasses

from tff_algos.core import checks


@dataclasses.dataclass(frozen=True)
class GateConfig:
  """When a candidate is refused in favour of the exported champion.

  A fall is how much worse the candidate scores on the same examples: the
  difference of two accuracies (0.01 is one point of percentage), or the
  relative rise of a mean squared error (0.01 is one percent). A group of
  clients refuses the candidate if its fall is significantly larger than its
  threshold.

  Attributes:
    max_fall: Threshold for the mean over participating clients, >= 0.
    max_unseen_fall: For the mean over unseen clients, >= 0.
    max_newcomers_fall: For the mean over participating clients without a
      personalized model in the champion, >= 0.
    max_cluster_fall: For the mean over the clients of each cluster, >= 0.
    max_source_fall: For the mean over clients on examples of each source
      distribution, or over the clients of each planted cluster, >= 0.
    max_worst_decile_fall: For the mean of the worst tenth of the participating
      clients, >= 0.
    max_held_out_fall: For the best cluster model on the held-out examples of
      each source distribution, >= 0.
    confidence: Probability that a candidate without a fall above its threshold
      in any group is not refused, in (0, 1); shared by all groups.
    min_units: Smaller groups (clients, held-out examples) are reported and do
      not refuse, >= 2.
    num_resamples: Resamples of the bootstrap; >= 100.
    batch_size: Examples in the batch whose prediction is timed, >= 1.
    max_batch_seconds: Longest time of its prediction, > 0.
    ignore_broken_champion: Whether a champion that cannot be loaded, or was
      trained on other features, is treated as none, in place of an error.
  """

  max_fall: float = 0.01
  max_unseen_fall: float = 0.03
  max_newcomers_fall: float = 0.03
  max_cluster_fall: float = 0.03
  max_source_fall: float = 0.03
  max_worst_decile_fall: float = 0.05
  max_held_out_fall: float = 0.03
  confidence: float = 0.95
  min_units: int = 8
  num_resamples: int = 10000
  batch_size: int = 32
  max_batch_seconds: float = 1.0
  ignore_broken_champion: bool = False

  def __post_init__(self):
    for field in dataclasses.fields(self):
      if field.name.endswith('fall'):
        checks.check_at_least(field.name, getattr(self, field.name), 0)
    checks.check_proper_share('confidence', self.confidence)
    checks.check_int('min_units', self.min_units, minimum=2)
    checks.check_int('num_resamples', self.num_resamples, minimum=100)
    checks.check_int('batch_size', self.batch_size, minimum=1)
    checks.check_positive('max_batch_seconds', self.max_batch_seconds)
