"""Runs that analyses do not measure, and the errors that say so."""

from tff_algos.adversaries import attacks
from tff_algos.core import errors
from tff_algos.experiments import experiment, session
from tff_algos.models.factors import decomposition


def check_not_private(
  config: experiment.ExperimentConfig, program: str
) -> None:
  """Raises ConfigError for a private run.

  Its server state holds the account beside the algorithm's own state.

  Args:
    config: The experiment.
    program: Name of the analysis.
  """
  if config.privacy.is_on:
    raise errors.ConfigError(
      f'{program} does not measure private runs; config.privacy has '
      f'noise_multiplier {config.privacy.noise_multiplier:g} and '
      f'target_epsilon {config.privacy.target_epsilon:g}. Take a run with 0 '
      'for both'
    )


def check_honest_cohorts(
  config: experiment.ExperimentConfig, needs: str
) -> None:
  """Raises ConfigError if clients drop out or are Byzantine.

  Args:
    config: The experiment.
    needs: The assumption that they break.
  """
  if config.training.dropout_rate:
    raise errors.ConfigError(
      f'{needs}; config.training.dropout_rate is '
      f'{config.training.dropout_rate:g}: set it to 0'
    )
  if config.attack.name != attacks.NONE:
    raise errors.ConfigError(
      f'{needs}; config.attack.name is {config.attack.name!r}: set it to '
      f'{attacks.NONE!r}'
    )


def check_not_low_rank(
  config: experiment.ExperimentConfig, program: str
) -> None:
  """Raises ConfigError if kernels are low-rank products.

  Only factors of atoms and coefficients are multiplied out.

  Args:
    config: The experiment.
    program: Name of the analysis.
  """
  options = config.model.options
  is_decomposable = isinstance(options, decomposition.DecomposableConfig)
  if is_decomposable and options.low_rank.layers != 'none':
    raise errors.ConfigError(
      f'{program} measures kernels, not low-rank products; '
      f'config.model.low_rank.layers is {options.low_rank.layers!r}. Take a '
      "run with 'none'"
    )


def check_not_continued(opened: session.Session) -> None:
  """Raises ConfigError for a run that continues another one.

  Its rounds cannot be repeated from the initial state.
  """
  if opened.parent:
    raise errors.ConfigError(
      f'{opened.workdir} continues {opened.parent.workdir}, but the theorem is '
      'compared with all rounds from the initial state; take a run that '
      'continues no other'
    )
