"""Warnings of a report: failures and suspicious results of a finished run."""

from collections.abc import Iterator

import numpy as np

from tff_algos.evaluation import association, recovery
from tff_algos.reports.plotting import style
from tff_algos.reports.run import run as run_lib

_START_APART = (
  'Initialize the cluster models differently: with another seed, with '
  'config.training.restarts, or with config.algorithm.initialization where the '
  'algorithm has it; or take fewer clusters.'
)

_DIVERGING = (
  'Smaller learning rates, or clip_norm of the optimizer, may keep the models '
  'from diverging.'
)

# Least ratio of all rounds to the last change of a partition settled early.
_EARLY = 5
# Maximum number of clients to name.
_MAX_NAMES = 20
# Share of the received model in an upload from which a wrong partition may
# persist: see docs/pfedkm.md.
_MUCH = 0.6


def sentences(run: run_lib.Run) -> list[str]:
  """Returns a sentence for each warning, with a suggested action."""
  return [
    *_attackers(run),
    *_invalid_results(run),
    *_scores_left_out(run),
    *_rounds_in_vain(run),
    *_clusters_without_clients(run),
    *_one_best_cluster(run),
    *_locked_partition(run),
    *_no_best_round(run),
  ]


def _attackers(run: run_lib.Run) -> Iterator[str]:
  """Warns of Byzantine clients and names their attack."""
  if 'is_attacker' not in run.clients:
    return
  names = run.attacker_ids
  attack = run.config.get('attack', {})
  shown = names[:_MAX_NAMES]
  more = (
    f' and {len(names) - len(shown)} more' if len(names) > len(shown) else ''
  )
  yield (
    f'{len(names)} Byzantine {"client" if len(names) == 1 else "clients"} '
    f'(attack {attack.get("name")!r} on the {attack.get("space")}): '
    f'{", ".join(shown)}{more}. All means but those of honest clients include '
    'their scores.'
  )


def _invalid_results(run: run_lib.Run) -> Iterator[str]:
  """Warns of client results that were left out, and of rounds without any."""
  if 'clients/invalid' not in run.rounds:
    return
  counts = np.nan_to_num(run.rounds.numbers('clients/invalid'))
  count = int(counts.sum())
  if not count:
    return
  noun = 'result was' if count == 1 else 'results were'
  text = f'{count} client {noun} not finite and got weight zero.'
  if 'train/loss' in run.rounds:
    # A round whose clients are all left out has no training loss.
    losses = run.series('train/loss')
    last = run.first_round if losses is None else int(losses.rounds[-1])
    later = counts[run.rounds.numbers('round') > last]
    if later.size and later.all():
      text += (
        f' Since round {last} no client has had a finite one, and nothing was '
        f'trained. {_DIVERGING}'
      )
  yield text


def _scores_left_out(run: run_lib.Run) -> Iterator[str]:
  """Warns of clients whose test scores are NaN."""
  last = run.summary.get('last') or {}
  for model, name in style.models_of_client(run).items():
    count = last.get(f'participating/test/{model}/{run.score_name}_num_nan')
    if count:
      noun = 'client has' if count == 1 else 'clients have'
      yield (
        f'{int(count):,} {noun} no finite test score ({name}) after round '
        f'{run.evaluated_round}; means over clients leave them out. '
        f'{_DIVERGING}'
      )


def _rounds_in_vain(run: run_lib.Run) -> Iterator[str]:
  """Warns of rounds whose proposal the committee did not accept."""
  series = run.series('adopt/is_accepted')
  if series is None or series.values.all():
    return
  agreed = series.rounds[series.values > 0].max(initial=0)
  count = int((series.values == 0).sum())
  text = (
    f'In {count} of {len(series.values)} rounds the committee accepted no '
    'proposal'
  )
  if agreed < series.rounds[-1]:
    since = f'round {int(agreed)}' if agreed else 'the start'
    text += (
      f'. The model and the committee are unchanged since {since}, and remain '
      'so if there are fewer honest members than required votes'
    )
  yield (
    f'{text}. A smaller config.algorithm.consensus.malicious_fraction, a '
    'larger committee or more max_views may help.'
  )


def _clusters_without_clients(run: run_lib.Run) -> Iterator[str]:
  """Warns of clusters that are the main cluster of no client."""
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
  """Warns if one cluster model is the best on every source."""
  best = association.best_clusters(
    run.held_out_scores, higher_is_better=run.higher_is_better
  )
  best = best[best != recovery.UNMATCHED]
  if run.num_clusters > 1 and len(best) > 1 and len(set(best)) == 1:
    yield (
      f'The model of {style.cluster_names(run)[best[0]]} is the best on all '
      f'{len(best)} source distributions: the clusters have not specialised. '
      'Check the pictures of memberships; if clients do form clusters, the '
      'models may only have become similar (try fewer rounds, or weaker '
      'coupling).'
    )


def _locked_partition(run: run_lib.Run) -> Iterator[str]:
  """Warns of an early partition that uploads could not have changed.

  Tang, Guo and Guo (2021): an upload is a weighted average of the received
  model, with weight `upload_memory`, and the client's local solution.
  """
  moved = run.series('train/moved_clients')
  memory = run.series('train/upload_memory')
  if moved is None or memory is None or _is_as_planted(run):
    return
  first = run.first_round
  last = int(moved.rounds[moved.values > 0].max(initial=first))
  share = memory.values.mean()
  num_rounds = moved.rounds[-1] - first
  if _EARLY * max(last - first, 1) > num_rounds or share < _MUCH:
    return
  since = f'since round {last}' if last > first else 'at all'
  yield (
    f'No client has changed its cluster {since}. This does not imply that the '
    f'clusters are right: with these step sizes {100 * share:.0f} % of an '
    'upload is the received model, so a wrong partition may persist. Compare '
    'another seed; to let clients change cluster, raise client_learning_rate '
    'or num_local_steps of config.algorithm.local_training.'
  )


def _no_best_round(run: run_lib.Run) -> Iterator[str]:
  """Warns if there is no best round by validation."""
  name = 'num_validation_examples'
  if run.summary.get('best_by_validation') or name not in run.clients:
    return
  if not run.clients.numbers(name)[run.is_participating].any():
    yield (
      'There is no best round by validation, as no client has validation '
      'examples; config.dataset.splits.validation_ratio sets their share.'
    )


def _is_as_planted(run: run_lib.Run) -> bool:
  ari = run.series('participating/membership/ari')
  return ari is not None and ari.values[-1] == 1


def _listed(names: list[str]) -> str:
  if len(names) == 1:
    return names[0]
  return f'{", ".join(names[:-1])} or {names[-1]}'
