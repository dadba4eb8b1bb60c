"""Flags of comparisons, and of the virtual clock, that programs share."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from absl import flags

from tff_algos.core import errors
from tff_algos.evaluation import round_time
from tff_algos.reports.sweep import plan

if TYPE_CHECKING:
  from tff_algos.experiments.sweeps import comparison

# Flags defined in this module are listed as flags of the program by --help.
flags.disclaim_key_flags()


def define_clock_flag() -> flags.FlagHolder:
  """Defines `--clock`, read by `round_time.read_clock`; returns the holder."""
  return flags.DEFINE_multi_string(
    'clock',
    [],
    'KEY=VALUE of the virtual clock; may be repeated: seconds of '
    f'{", ".join(round_time.Work._fields)}; download=primary_serial; '
    'rates=1e6,1e7 numbers a second.',
  )


def define() -> 'Callable[[], comparison.Options]':
  """Defines the flags of a comparison; returns the function that reads them."""
  metrics = flags.DEFINE_list(
    'metrics',
    '',
    'Prefixes of the metrics to print, such as held_out/; default: the metrics '
    'of the report.',
  )
  choose = flags.DEFINE_string(
    'choose',
    '',
    'Axis of the sweep to select the best value of, such as '
    'algorithm.num_clusters.',
  )
  choose_by = flags.DEFINE_enum(
    'choose_by',
    plan.VALIDATION,
    list(plan.CRITERIA),
    'Criterion of --choose: validation examples, or unseen clients.',
  )
  target = flags.DEFINE_string(
    'target',
    '',
    'METRIC=VALUE: also report the rounds and the communication until a metric '
    'reaches a value; METRIC=95%: until it reaches 95 % of its final value.',
  )
  clock = define_clock_flag()

  def read() -> 'comparison.Options':
    from tff_algos.experiments.sweeps import comparison
    from tff_algos.reports.sweep import target as target_lib

    question = None
    if choose_by.present and not choose.value:
      raise errors.ConfigError(
        f'--choose_by={choose_by.value} is the criterion of --choose: give '
        '--choose=KEY, too, or leave it out'
      )
    if choose.value:
      question = plan.Question(choose.value, choose_by.value)
    return comparison.Options(
      metrics.value,
      question,
      target_lib.parse(target.value) if target.value else None,
      round_time.read_clock(clock.value),
    )

  return read
