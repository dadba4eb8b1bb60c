"""Sentences about what went wrong in a run without ending it."""

from collections.abc import Iterator

import numpy as np

from tff_algos.evaluation import association, recovery
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib

_START_APART = (
  'Let the cluster models start elsewhere: with another seed, with '
  'config.training.restarts, or with config.algorithm.initialization where the '
  'algorithm has it; or take fewer clusters.'
)

# A partition settled early if the run went on for so many times as long.
_EARLY = 5
# So many clients are named.
_MAX_NAMES = 20
# Three planted groups of ten from eight wrong starts, 100 rounds (the toy of
# tests/theory/pfedkm_toy_test.py): with uploads that are 84 % of what was sent
# no start healed, with 75 % three did, with 70 % seven, with 60 % all.
_NEARLY_ALL, _MUCH = 0.84, 0.7


def sentences(run: run_lib.Run) -> list[str]:
  """Returns a sentence for each warning, with what to do about it."""
  return [
    *_attackers(run),
    *_invalid_results(run),
    *_rounds_in_vain(run),
    *_clusters_without_clients(run),
    *_one_best_cluster(run),
    *_locked_partition(run),
    *_no_best_round(run),
  ]


def _attackers(run: run_lib.Run) -> Iterator[str]:
  """Says which clients attack, and how."""
  if 'is_attacker' not in run.clients:
    return
  flags = run.clients.numbers('is_attacker') == 1
  ids = run.clients.texts('client_id')
  names = [name for name, attacks in zip(ids, flags, strict=True) if attacks]
  attack = run.config.get('attack', {})
  shown = names[:_MAX_NAMES]
  more = (
    f' and {len(names) - len(shown)} more' if len(names) > len(shown) else ''
  )
  yield (
    f'{len(names)} clients attack ({attack.get("name")}, in the space of the '
    f'{attack.get("space")}): {", ".join(shown)}{more}. Their own scores are '
    'in all means but those of honest clients.'
  )


def _invalid_results(run: run_lib.Run) -> Iterator[str]:
  if 'clients/invalid' in run.rounds:
    count = int(np.nansum(run.rounds.numbers('clients/invalid')))
    if count:
      yield f'{count} client results were not finite and got weight zero.'


def _rounds_in_vain(run: run_lib.Run) -> Iterator[str]:
  """Says how many rounds a committee did not agree on, and since when none."""
  series = run.series('adopt/is_accepted')
  if series is None or series.values.all():
    return
  agreed = series.rounds[series.values > 0].max(initial=0)
  count = int((series.values == 0).sum())
  said = (
    f'In {count} of {len(series.values)} rounds the committee did not agree'
  )
  if agreed < series.rounds[-1]:
    since = f'since round {int(agreed)}' if agreed else 'ever'
    said += (
      f', and none has {since}: the model and the committee stay what they '
      'are. '
      'Where fewer members are honest than votes are needed they stay for ever'
    )
  yield (
    f'{said}. A smaller config.algorithm.consensus.malicious_fraction, a '
    'larger committee or more max_views may help.'
  )


def _clusters_without_clients(run: run_lib.Run) -> Iterator[str]:
  """Says which clusters nobody's largest membership is in."""
  if run.memberships is None or run.num_clusters == 1:
    return
  clusters = association.main_clusters(run.memberships[0])
  used = sorted(set(clusters) - {association.UNDECIDED})
  names = style.cluster_names(run)
  if len(used) == 1 and association.UNDECIDED not in clusters:
    yield (
      f'All {len(clusters):,} clients have their largest membership in '
      f'{names[used[0]]}, none in any other cluster. {_START_APART}'
    )
  elif used and len(used) < run.num_clusters:
    unused = [name for cluster, name in enumerate(names) if cluster not in used]
    yield (
      f'No client has its largest membership in {_listed(unused)}. '
      f'{_START_APART}'
    )


def _one_best_cluster(run: run_lib.Run) -> Iterator[str]:
  """Says that one cluster model beats all others on every source."""
  best = association.best_clusters(
    run.held_out_scores, higher_is_better=run.higher_is_better
  )
  best = best[best != recovery.UNMATCHED]
  if run.num_clusters > 1 and len(best) > 1 and len(set(best)) == 1:
    yield (
      f'The model of {style.cluster_names(run)[best[0]]} is the best on all '
      f'{len(best)} source distributions: the clusters have not specialised. '
      'Look at the pictures of memberships; where clients do part, the models '
      'may only have grown alike (fewer rounds, or weaker coupling).'
    )


def _locked_partition(run: run_lib.Run) -> Iterator[str]:
  """Says that a partition which settled early could not have done otherwise.

  Tang, Guo and Guo (2021): an upload is the model that was sent, by the share
  `upload_memory`, and what the client made of it by the rest.
  """
  moved = run.series('train/moved_clients')
  memory = run.series('train/upload_memory')
  if moved is None or memory is None or _is_as_planted(run):
    return
  last = int(moved.rounds[moved.values > 0].max(initial=0))
  share = memory.values.mean()
  if _EARLY * max(last, 1) > moved.rounds[-1] or share < _MUCH:
    return
  since = f'since round {last}' if last else 'at all'
  outlook = 'could not heal' if share >= _NEARLY_ALL else 'may not heal'
  yield (
    f'No client has changed its cluster {since}. That does not say that the '
    f'clusters are right: with these step sizes {100 * share:.0f} % of an '
    f'upload is the model that the client was sent, so a wrong partition '
    f'{outlook}. See whether another seed finds the same; to let clients move, '
    'raise client_learning_rate or num_local_steps of '
    'config.algorithm.local_training.'
  )


def _no_best_round(run: run_lib.Run) -> Iterator[str]:
  """Says why there is no best round by validation."""
  splits = (run.config.get('dataset') or {}).get('splits') or {}
  if splits.get('validation_ratio') == 0 and not run.summary.get(
    'best_by_validation'
  ):
    yield (
      'There is no best round by validation, as no client has validation '
      'examples; config.dataset.splits.validation_ratio gives them some.'
    )


def _is_as_planted(run: run_lib.Run) -> bool:
  ari = run.series('participating/membership/ari')
  return ari is not None and ari.values[-1] == 1


def _listed(names: list[str]) -> str:
  if len(names) == 1:
    return names[0]
  return f'{", ".join(names[:-1])} or {names[-1]}'
