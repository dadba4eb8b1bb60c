"""Learning rates that fall after given rounds."""

import dataclasses

from tff_algos.core import checks


@dataclasses.dataclass(frozen=True)
class DecayConfig:
  """When learning rates fall, and how far.

  Attributes:
    after_rounds: Rounds after each of which the rates are multiplied by
      `factor`, each >= 1; none for constant rates.
    factor: In (0, 1], say 0.1.
  """

  after_rounds: tuple[int, ...] = ()
  factor: float = 0.1

  def __post_init__(self):
    for round_num in self.after_rounds:
      checks.check_int('after_rounds', round_num, minimum=1)
    checks.check_positive('factor', self.factor)
    checks.check_fraction('factor', self.factor)

  def scale(self, round_num: int) -> float:
    """Returns what the rates of a round are multiplied by.

    Args:
      round_num: From 1.
    """
    num_falls = sum(round_num > after for after in self.after_rounds)
    return self.factor**num_falls
