"""Simulated duration of a round of each system, on a virtual clock.

Che, Li, Chen, He and Zheng (CMFL, TPDS 2022), section 5.2 and 6.5: clients work
in parallel, a client sends or receives uploads one after the other, and a
model of s numbers takes s / r seconds at r numbers per second. The paper gives
no formula for the baselines; these are from the authors' public code, whose
plots the published times come from. There BrainTorrent fetches the model of
every training client, and GossipFL one less; neither was run, the curves are
FedAvg's on another time axis. `pulling` has both formulas; of a real round of
the algorithms of those names it takes the number of models that a client
received.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

from tff_algos.core import checks, errors
from tff_algos.core.structures import Array

# Of one round, or of each of several rounds.
Amount: TypeAlias = Array | float

# 1, 10 and 100 "Mps": million numbers a second, per client.
RATES = (1e6, 1e7, 1e8)
DOWNLOADS = ('parallel', 'primary_serial')


class Work(NamedTuple):
  """Seconds of computation in a round; defaults are from the authors' code.

  Attributes:
    training: Local training of a client.
    server_aggregation: Averaging all uploads, without scores.
    scoring: Computing all distances, at a committee member.
    committee_aggregation: Averaging the selected uploads, at a committee
      member.
  """

  training: float = 0.05
  server_aggregation: float = 0.04
  scoring: float = 0.026
  committee_aggregation: float = 0.025


class Clock(NamedTuple):
  """Parameters of the virtual clock.

  Attributes:
    work: Seconds of computation in a round.
    download: One of `DOWNLOADS`: how clients receive the committee's model.
    rates: Numbers per second of a client's connection, each > 0.
  """

  work: Work = Work()
  download: str = 'parallel'
  rates: tuple[float, ...] = RATES


def read_clock(settings: Iterable[str]) -> Clock:
  """Returns the clock of the authors' code with some settings replaced.

  Args:
    settings: `KEY=VALUE`: the seconds of a field of `Work`, `download=` one of
      `DOWNLOADS`, or `rates=` numbers per second, separated by commas.

  Raises:
    ConfigError: If a setting is unknown or its value invalid.
  """
  clock = Clock()
  for setting in settings:
    key, _, value = setting.partition('=')
    if key in Work._fields:
      seconds = checks.check_at_least(f"the clock's {key}", _number(value), 0)
      clock = clock._replace(work=clock.work._replace(**{key: seconds}))
    elif key == 'rates':
      found = map(_number, value.split(','))
      rates = (checks.check_positive("the clock's rates", one) for one in found)
      clock = clock._replace(rates=tuple(rates))
    elif key == 'download' and value in DOWNLOADS:
      clock = clock._replace(download=value)
    else:
      raise errors.ConfigError(
        f'the clock has no setting {setting!r}; give seconds as '
        f'{", ".join(f"{name}=0.05" for name in Work._fields)}, a download as '
        f'{" or ".join(f"download={name}" for name in DOWNLOADS)}, or numbers '
        'a second as rates=1e6,1e7'
      )
  return clock


def _number(text: str) -> Any:
  """Returns the number, or else the text itself, which checks then refuse."""
  try:
    return float(text)
  except ValueError:
    return text


class RoundTime(NamedTuple):
  """Seconds of one round, or of each of several rounds.

  Attributes:
    communication: Of all sequential transfers.
    computation: Of all sequential work.
  """

  communication: Amount
  computation: Amount


def cmfl(
  transfer: Amount,
  committee_size: Amount,
  num_training: Amount,
  download: str = 'parallel',
  work: Work = Work(),
) -> RoundTime:
  """Returns the time of a CMFL round: every member receives every upload.

  Args:
    transfer: Seconds of one model.
    committee_size: C >= 1.
    num_training: n >= 1.
    download: `'parallel'`: all clients receive the model at the same time, as
      in the authors' code. `'primary_serial'`: the primary sends it n times,
      one after the other, as in the paper's complexity analysis.
    work: Of computation.
  """
  num_downloads = 1 if download == 'parallel' else num_training
  return RoundTime(
    (committee_size + num_downloads) * transfer,
    work.training + work.scoring + work.committee_aggregation,
  )


def pulling(
  transfer: Amount, num_models: Amount, work: Work = Work()
) -> RoundTime:
  """Returns the time of a round in which a client receives models to average.

  Also that of a FedAvg round: a broadcast and an upload, `num_models=2`.

  Args:
    transfer: Seconds of one model.
    num_models: Models that are transferred, one after the other, >= 0;
      fractional for segments.
    work: Of computation.
  """
  return RoundTime(
    num_models * transfer, work.training + work.server_aggregation
  )
