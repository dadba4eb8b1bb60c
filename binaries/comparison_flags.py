"""What runs are compared by: flags, and whether the runs can answer them."""

from collections.abc import Callable
from typing import Any

from absl import flags

from tff_algos.core import errors
from tff_algos.evaluation import round_time
from tff_algos.experiments.sweeps import grid
from tff_algos.reports.sweep import choice as choice_lib
from tff_algos.reports.sweep import target as target_lib


def define_clock_flag() -> flags.FlagHolder:
  """Defines `--clock`, which `round_time.read_clock` reads; returns the holder."""
  return flags.DEFINE_multi_string(
    'clock',
    [],
    'KEY=VALUE of the virtual clock; may be given several times: seconds of '
    f'{", ".join(round_time.Work._fields)}; download=primary_serial; '
    'rates=1e6,1e7 numbers a second.',
  )


def define_flags() -> Callable[[], tuple[Any, ...]]:
  """Defines flags; returns what gives `compare.compare` all but the folder."""
  metrics = flags.DEFINE_list(
    'metrics',
    '',
    'Starts of the metric names to print, such as held_out/; default: those of '
    'the page.',
  )
  least_ari = flags.DEFINE_float(
    'least_ari',
    0.9,
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

  def arguments() -> tuple[Any, ...]:
    goal = target_lib.parse(target.value) if target.value else None
    question = None
    if choose.value:
      question = choice_lib.Question(choose.value, choose_by.value)
    time = round_time.read_clock(clock.value)
    return metrics.value, least_ari.value, question, goal, time

  return arguments


def check(runs: grid.Grid, question: choice_lib.Question | None) -> None:
  """Checks that a sweep will answer a question, before it runs.

  Args:
    runs: The sweep.
    question: What to choose; None for nothing.

  Raises:
    UserError: If no axis is meant, or a dataset has nothing to choose by.
  """
  if question is None:
    return
  choice_lib.check(runs.plan.axes, question)
  for run, config in zip(runs.plan.runs, runs.configs, strict=True):
    dataset = config.dataset
    is_answered = {
      choice_lib.VALIDATION: dataset.splits.validation_ratio > 0,
      choice_lib.UNSEEN: dataset.partition.num_unseen_clients > 0,
    }
    if not is_answered[question.by]:
      raise errors.ConfigError(
        f'--choose_by={question.by} needs datasets with '
        f'{choice_lib.CRITERIA[question.by].needs}; that of {run.folder} has '
        'none'
      )
