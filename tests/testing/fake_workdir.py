"""Writes the files of a run that never was, with numbers like a real one's."""

import pathlib
import shutil

import numpy as np

from tests.testing import csv_files, fake_atoms, fake_audit, fake_drift
from tff_algos.core import sealed_json, seeds
from tff_algos.evaluation import recovery
from tff_algos.reports.run import run as run_lib


def write(
  workdir: pathlib.Path,
  *,
  num_clients: int = 24,
  num_clusters: int = 2,
  source_names: tuple[str, ...] = ('upright', 'rotated_90'),
  num_rounds: int = 30,
  score: str = 'accuracy',
  config: dict | None = None,
) -> None:
  """Writes what an invented run leaves, but for dataset and checkpoints."""
  fake = _Fake(num_clients, num_clusters, source_names, num_rounds, score)
  (workdir / 'evaluation').mkdir(parents=True, exist_ok=True)
  sealed_json.write(
    workdir / 'config.json',
    {
      'name': 'fed_soft/digits',
      'config_hash': '0123456789abcdef',
      'config': config
      or {
        'algorithm': {
          'name': 'fed_soft' if num_clusters > 1 else 'fed_avg',
          'num_clusters': num_clusters,
          'proximal_weight': 0.1,
        },
        'num_rounds': num_rounds,
        'seed': 1,
      },
    },
  )
  rows = [fake.row(round_num) for round_num in range(num_rounds + 1)]
  if num_clusters > 1:
    write_memberships(workdir, fake.memberships)
    fake_audit.write(
      workdir, [f'client_{index:04d}' for index in range(num_clients)]
    )
  fake_atoms.write(workdir, num_clients)
  fake_drift.write(workdir)
  csv_files.write(workdir / 'metrics.csv', rows)
  csv_files.write(workdir / 'evaluation' / 'clients.csv', fake.clients())
  summary = {
    **_last_and_best(rows, score),
    'source_names': list(source_names),
    'num_clusters': num_clusters,
    **fake.matching(),
    'dataset_version': '5d41402abc4b2a76',
  }
  if score == 'accuracy':
    summary['majority_class'] = {
      'per_client': 0.1462,
      'global': 0.1037,
      **{
        f'held_out/{name}': 0.11 + 0.01 * index
        for index, name in enumerate(source_names)
      },
    }
  sealed_json.write(workdir / 'evaluation' / 'summary.json', summary)


def read(workdir: pathlib.Path, **options) -> run_lib.Run:
  """Writes a run, and reads it."""
  write(workdir, **options)
  return run_lib.read(workdir)


def change_summary(workdir: pathlib.Path, point=(), **entries) -> None:
  """Changes entries of the summary, and metrics of its last round, `point`."""
  path = workdir / 'evaluation' / 'summary.json'
  summary = sealed_json.read(path, '') | entries
  summary['last'] |= dict(point)
  sealed_json.write(path, summary)


def forget_mixture(workdir: pathlib.Path) -> None:
  """Removes the ground truth; the clusters' sources stay."""
  path = workdir / 'evaluation' / 'clients.csv'
  path.write_text(path.read_text().replace('true_mixture', 'unknown'))
  change_summary(workdir, planted_names=None)


def keep_rounds_from(workdir: pathlib.Path, round_num: int) -> None:
  """Removes the rounds before one, as of a run that continues another."""
  path = workdir / 'metrics.csv'
  lines = path.read_text().splitlines()
  path.write_text('\n'.join([lines[0], *lines[1 + round_num :]]) + '\n')
  for one in (workdir / 'memberships').glob('*.npy'):
    if int(one.stem.removeprefix('round_')) < round_num:
      one.unlink()


def score_held_out(workdir: pathlib.Path, scores, score='accuracy') -> None:
  """Sets the scores of the evaluated round, `[num_clusters, num_sources]`."""
  names = run_lib.read(workdir).source_names
  point = {
    f'held_out/{source}/cluster_{cluster}/{score}': value
    for cluster, row in enumerate(scores)
    for source, value in zip(names, row, strict=True)
  }
  change_summary(workdir, point)


def write_memberships(
  workdir: pathlib.Path, memberships: dict[int, np.ndarray]
) -> None:
  """Writes round -> `[num_clients, num_clusters]`; replaces what is there."""
  folder = workdir / 'memberships'
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir()
  for round_num, values in memberships.items():
    np.save(folder / f'round_{round_num:06d}.npy', values.astype(np.float32))


def _last_and_best(rows, score):
  """The best round is the last but one, if there are two."""
  evaluated = [row for row in rows if f'unseen/test/cluster/{score}' in row]
  skipped = ('seconds', 'train/loss', 'cost/', 'clients/')
  last, best = (
    {key: value for key, value in row.items() if not key.startswith(skipped)}
    for row in (evaluated[-1], evaluated[-2:][0])
  )
  return {'last': last, 'best_by_validation': best}


class _Fake:
  """Learning curves that rise (or errors that fall) to a plateau."""

  def __init__(
    self, num_clients, num_clusters, source_names, num_rounds, score
  ):
    self._random = seeds.numpy_generator(0, 'fake_workdir')
    self._source_names = source_names
    self._num_clusters = num_clusters
    self._num_rounds = num_rounds
    self._score = score
    own = 0.9 if len(source_names) == 2 else 0.7
    rest = (1 - own) / max(1, len(source_names) - 1)
    self._planted = np.arange(num_clients) % len(source_names)
    self._mixture = np.full((num_clients, len(source_names)), rest)
    self._mixture[np.arange(num_clients), self._planted] = own
    self.memberships = {}

  def _learned(self, round_num, plateau, speed=4.0):
    share = 1 - np.exp(-round_num / speed)
    value = (
      0.1 + (plateau - 0.1) * share + self._random.normal(0, 0.008) * share
    )
    return (
      min(value, 1.0) if self._score == 'accuracy' else 200 * (1.02 - value)
    )

  def _membership(self, round_num):
    """Cluster s stands for the source before s: the matching has work to do."""
    share = 1 - np.exp(-((round_num / 6) ** 2))
    clusters = np.full((len(self._mixture), self._num_clusters), 0.05)
    for cluster in range(self._num_clusters):
      source = (cluster - 1) % len(self._source_names)
      clusters[:, cluster] = self._mixture[:, source]
    noise = self._random.normal(0, 0.05, clusters.shape)
    flat = 1 / self._num_clusters
    found = np.clip(share * clusters + (1 - share) * flat + noise, 0.01, 1)
    return found / found.sum(axis=1, keepdims=True)

  def row(self, round_num):
    floats = 0 if round_num == 0 else 18 * 50_890 * self._num_clusters
    row = {
      'round': round_num,
      'seconds': round(0.9 + self._random.random(), 3),
      'train/loss': 2.3 * np.exp(-round_num / 8) + 0.15,
      'cost/downlink_floats': floats,
      'cost/uplink_floats': floats // self._num_clusters,
      'cost/local_solves': 18 if round_num else 0,
      'clients/invalid': 0,
    }
    if self._num_clusters > 1 and round_num:
      row.update(_regrouping(round_num))
      row.update({'train/num_members': 7, 'train/num_training': 11})
    if round_num % 2 and round_num != self._num_rounds:
      return row
    for source_index, source in enumerate(self._source_names):
      for cluster in range(self._num_clusters):
        mine = (cluster - 1) % len(self._source_names) == source_index
        value = self._learned(
          round_num, 0.93 if mine else 0.62 - 0.02 * cluster
        )
        row[f'held_out/{source}/cluster_{cluster}/{self._score}'] = value
        row[f'held_out/{source}/cluster_{cluster}/loss'] = 2.3 - 2 * value
    for split in ('train', 'validation', 'test'):
      kind = f'participating/{split}'
      mean = self._learned(round_num, 0.95, 2.5)
      row[f'{kind}/personalized/{self._score}'] = mean
      row[f'{kind}/personalized/{self._score}_plain_mean'] = mean * 0.99
      row[f'{kind}/personalized/{self._score}_worst_decile'] = mean * 0.86
      row[f'{kind}/cluster/{self._score}'] = self._learned(round_num, 0.895)
    row[f'unseen/test/cluster/{self._score}'] = self._learned(round_num, 0.88)
    self._add_recovery(row, round_num)
    return row

  def _add_recovery(self, row, round_num):
    membership = self._membership(round_num)
    self.memberships[round_num] = membership
    found = recovery.recovery(recovery.hard_labels(membership), self._planted)
    for name, value in found._asdict().items():
      row[f'participating/membership/{name}'] = value
    error = recovery.membership_error(membership, self._mixture)
    row['participating/membership/error'] = error

  def matching(self):
    """Returns the entries of the summary on the ground truth."""
    names = self._source_names
    matched = recovery.match_clusters(
      self.memberships[self._num_rounds], self._mixture
    )
    return {
      'planted_names': list(names),
      'matched_sources': [
        None if source == recovery.UNMATCHED else names[source]
        for source in matched
      ],
    }

  def clients(self):
    membership = self.memberships[self._num_rounds]
    for index in range(len(self._mixture)):
      spread = self._random.beta(12, 2)
      personalized = self._learned(50, 0.6 + 0.4 * spread)
      row = {
        'client_id': f'client_{index:04d}',
        'group': 'participating',
        'num_train_examples': int(self._random.integers(20, 90)),
        'num_test_examples': int(self._random.integers(5, 25)),
        'cluster_id': int(membership[index].argmax()),
      }
      for cluster, value in enumerate(membership[index]):
        row[f'membership_{cluster}'] = value
      for source, value in enumerate(self._mixture[index]):
        row[f'true_mixture_{source}'] = value
      row[f'test_personalized_{self._score}'] = personalized
      gap = self._random.normal(0.04, 0.04)
      row[f'test_cluster_{self._score}'] = (
        min(personalized - gap, 1.0)
        if self._score == 'accuracy'
        else personalized * np.exp(5 * gap)
      )
      yield row
    for index in range(6):
      yield {
        'client_id': f'unseen_{index:04d}',
        'group': 'unseen',
        'num_test_examples': 20,
        'cluster_id': index % self._num_clusters,
        # The fitted mixture of a newcomer, worse than all models.
        f'test_personalized_{self._score}': self._learned(0, 0.88),
        f'test_cluster_{self._score}': self._learned(50, 0.88),
        **{
          f'membership_{cluster}': float(cluster == index % self._num_clusters)
          for cluster in range(self._num_clusters)
        },
      }


def _regrouping(round_num):
  """What a server that clusters uploads measures, as numbers go."""
  apart = 3 * (1 - np.exp(-round_num / 5))
  return {
    'train/upload_memory': 0.6 + 0.1 * np.exp(-round_num / 10),
    'train/moved_clients': 0.5 if round_num == 1 else 0.0,
    'train/transition_distance': 1.5 if round_num == 1 else 0.0,
    'train/cluster_model_distance': apart,
    'train/local_model_distance': apart + 0.2,
    'train/local_model_distance_within': 0.3,
    'train/local_model_distance_between': apart + 0.4,
    'train/k_means_iterations': 4 if round_num < 3 else 2,
    'train/k_means_inertia': 2.0 + 1 / round_num,
  }
