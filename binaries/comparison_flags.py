"""Flags that binaries.compare and binaries.sweep share."""

from collections.abc import Callable

from absl import flags

from tff_algos.evaluation import round_time
from tff_algos.experiments.sweeps import comparison
from tff_algos.reports.sweep import choice as choice_lib
from tff_algos.reports.sweep import sweep as sweep_lib
from tff_algos.reports.sweep import target as target_lib


def define_clock_flag() -> flags.FlagHolder:
  """Defines `--clock`, read by `round_time.read_clock`; returns the holder."""
  return flags.DEFINE_multi_string(
    'clock',
    [],
    'KEY=VALUE of the virtual clock; may be given several times: seconds of '
    f'{", ".join(round_time.Work._fields)}; download=primary_serial; '
    'rates=1e6,1e7 numbers a second.',
  )


def define() -> Callable[[], comparison.Options]:
  """Defines the flags of a comparison; returns the function that reads them."""
  metrics = flags.DEFINE_list(
    'metrics',
    '',
    'Starts of the metric names to print, such as held_out/; default: those of '
    'the page.',
  )
  least_ari = flags.DEFINE_float(
    'least_ari',
    sweep_lib.LEAST_ARI,
    'Adjusted Rand index from which on a run has found the planted clusters.',
    lower_bound=-1.0,
    upper_bound=1.0,
  )
  choose = flags.DEFINE_string(
    'choose',
    '',
    'An axis whose best value is to be named, such as algorithm.num_clusters.',
  )
  choose_by = flags.DEFINE_enum(
    'choose_by',
    choice_lib.VALIDATION,
    list(choice_lib.CRITERIA),
    'What --choose goes by: validation examples, or unseen clients.',
  )
  target = flags.DEFINE_string(
    'target',
    '',
    'METRIC=VALUE: also tell the rounds, and how much is sent, until a metric '
    'reaches a value; METRIC=95%: until it reaches 95 % of its own last one.',
  )
  clock = define_clock_flag()

  def read() -> comparison.Options:
    question = None
    if choose.value:
      question = choice_lib.Question(choose.value, choose_by.value)
    return comparison.Options(
      metrics.value,
      least_ari.value,
      question,
      target_lib.parse(target.value) if target.value else None,
      round_time.read_clock(clock.value),
    )

  return read
