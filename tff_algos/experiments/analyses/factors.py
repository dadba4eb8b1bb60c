"""Update variance, latent clients and filter atoms of a run.

Chen and Qiu (2025), arXiv:2503.08652, sections 5.1 and 7.1.
"""

import dataclasses
import math
import os
import pathlib
from typing import Any

import numpy as np

from tff_algos.algorithms import registry
from tff_algos.algorithms.filter_decomposition import (
  grouped_aggregation,
  latent_clients,
)
from tff_algos.core import errors, records, seeds
from tff_algos.experiments import experiment, session, tables
from tff_algos.experiments.analyses import (
  filter_atoms,
  kernel_variance,
  refusals,
)
from tff_algos.numerics import factored_weights
from tff_algos.reports.run import page
from tff_algos.runtimes import cohort
from tff_algos.runtimes import registry as runtimes
from tff_algos.training import loop

_LATENT = (
  'num_latent',
  'latent_loss',
  'latent_score',
  'real_loss',
  'real_score',
)
_ALGORITHMS = (*registry.HOSTS, 'filter_decomposition')


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Sample sizes of the measurements.

  Attributes:
    num_repeats: Rounds from each state, >= 2.
    num_pairs: Latent clients to evaluate, >= 1.
    num_examples: Held-out examples to evaluate them on, >= 1.
  """

  num_repeats: int
  num_pairs: int
  num_examples: int


def measure(
  config: experiment.ExperimentConfig,
  folder: str | os.PathLike[str],
  sizes: Sizes,
) -> list[dict[str, Any]]:
  """Writes the tables and draws the report; returns the rows of factors.csv.

  Raises:
    UserError: If the algorithm has no single server model, the model has no
      convolution or low-rank kernels, the run is private, its clients drop out
      or are Byzantine, or there is no checkpoint.
  """
  name = config.algorithm.name
  if name not in _ALGORITHMS:
    raise errors.ConfigError(
      f'binaries.factors is for {", ".join(_ALGORITHMS)}, which have one model '
      f'at the server, but config.algorithm.name is {name!r}'
    )
  refusals.check_not_private(config, 'binaries.factors')
  refusals.check_not_low_rank(config, 'binaries.factors')
  refusals.check_honest_cohorts(
    config, 'binaries.factors repeats rounds of whole, honest cohorts'
  )
  with session.open_session(config, folder) as opened:
    if not _kernels(opened.initial_state().model_weights).size:
      raise errors.ConfigError(
        'binaries.factors measures convolution kernels, and config.model.name '
        f'is {config.model.name!r}, which has none; take a model that has, '
        'such as that of configs/filter_decomposition/global_models.py'
      )
    examples = opened.dataset.held_out(0)
    rows: list[dict[str, Any]] = []
    state: Any = None
    for round_num, state in opened.saved_states():
      rows.append(
        {
          'round': round_num,
          **variance(opened, round_num + 1, state, sizes),
          **latent(opened, round_num + 1, state, examples, sizes),
        }
      )
    # Server and client states are now those of the latest checkpoint.
    rows_of_file = {
      'factors.csv': rows,
      'atoms.csv': filter_atoms.atom_rows(state.model_weights),
      'own_atoms.csv': filter_atoms.own_rows(opened, state),
    }
  if not rows_of_file['atoms.csv']:
    rows_of_file = {'factors.csv': rows}
  evaluation = pathlib.Path(folder, 'evaluation')
  with records.rewriting(evaluation.parent, evaluation.name, rows_of_file):
    for name, table in rows_of_file.items():
      tables.write_table(evaluation / name, table)
  if (evaluation / 'summary.json').is_file():
    page.write_report(folder)
  return rows


def variance(
  opened: session.Session, round_num: int, server_state: Any, sizes: Sizes
) -> dict[str, float]:
  """Returns the variance of the kernels over repetitions of a round."""
  first = opened.store.seed
  kernels = []
  for seed in range(first, first + sizes.num_repeats):
    after, _ = loop.run_round(
      opened.algorithm,
      opened.runtime,
      opened.source,
      opened.store,
      server_state,
      round_num,
      seed,
    )
    opened.store.discard()
    kernels.append(_kernels(after.model_weights))
  found = kernel_variance.estimate(np.stack(kernels))
  return {'variance': found.variance, 'relative_variance': found.relative}


def latent(
  opened: session.Session,
  round_num: int,
  server_state: Any,
  examples: Any,
  sizes: Sizes,
) -> dict[str, float]:
  """Returns mean loss and score of latent and of real clients of a round.

  Empty without atoms or held-out examples, or if the round sends no
  coefficients.
  """
  seed = opened.store.seed
  algorithm, population = opened.algorithm, opened.source.population
  call = next(algorithm.plan_round(server_state, population, round_num, seed))
  phase = algorithm.phases[call.phase]
  has_atoms = factored_weights.factored_layers(server_state.model_weights)
  sends_factors = grouped_aggregation.LOCAL_KERNELS not in phase.aggregation
  is_measured = examples.num_examples and call.purpose == 'train'
  if not (has_atoms and sends_factors and is_measured):
    return {}
  phase = latent_clients.collect_models(phase)
  # A separate runtime, since a runtime caches the graph of a phase by its name.
  collecting = dataclasses.replace(algorithm, phases={call.phase: phase})
  with runtimes.build_runtime(
    opened.config.runtime, collecting, population.num_clients
  ) as runtime:
    clients = cohort.Cohort(
      call, round_num, seed, opened.source, opened.store.load
    )
    done = runtime.run(phase, server_state, clients)
  models = done.server_metrics['local_weights']
  stacked = {
    name: leaf[models.is_valid] for name, leaf in models.values.items()
  }
  count = int(np.sum(models.is_valid))
  pairs = latent_clients.draw_pairs(
    count, sizes.num_pairs, seeds.numpy_generator(seed, 'latent', round_num)
  )
  chosen = slice(None, sizes.num_examples)
  shown = {'x': examples.x[chosen], 'y': examples.y[chosen]}
  real = np.stack([np.arange(count)] * 2, axis=1)
  values = [count**2 - count]
  for one in (pairs, real):
    scores = latent_clients.score(algorithm.cluster_model, stacked, one, shown)  # pyright: ignore[reportArgumentType]
    values += [
      float(np.mean(each)) if len(each) else math.nan for each in scores
    ]
  return dict(zip(_LATENT, values, strict=True))


def _kernels(weights):
  """Returns the entries of all convolution kernels, `[n]`."""
  plain = factored_weights.build_kernels(weights)
  leaves = [leaf for leaf in plain.values() if len(leaf.shape) == 4]
  return np.concatenate([np.zeros(0), *map(np.ravel, leaves)])
