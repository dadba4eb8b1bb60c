"""The cases: which contenders meet on which workload, and who is the measure.

FedAvg on 28 x 28 x 1 inputs, 100 examples a client, all clients in the cohort,
5 local SGD steps of 20 examples, learning rate 0.1, unless a case says else.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks import workload as workload_lib

FLOOR = 'floor_tensorflow'
# Its server holds 355 models several times: 11 GB.
LARGE = 'committee355'
PEERS = ('jax', 'fedjax', 'pytorch', 'flower')
_CNN_TRAINERS = ('vectorized', 'tff', 'tff_stock', FLOOR, *PEERS)
# XLA is not for convolutions on a CPU.
_TRAINERS = ('vectorized', 'pjrt', *_CNN_TRAINERS[1:])
# The others have no IFCA.
_IFCA_TRAINERS = (
  *('vectorized', 'pjrt', 'tff', FLOOR, 'jax', 'fedjax', 'pytorch'),
)
# Whose clients train as FedAvg's do; what they have besides is what it
# measures. Not here: pFedMe and pFedKM (a case of their own), L2GD (a round is
# one step), BrainTorrent (a round is one client) and filter decomposition (it
# needs convolutions).
_EVERY_ALGORITHM = (
  *('fed_avg', 'fed_soft', 'ifca', 'fed_em', 'ppfl', 'cmfl', 'cfl', 'scaffold'),
  *('fed_dyn', 'fed_dc', 'fed_pac', 'partial_fed_avg', 'ditto', 'fine_tuning'),
  *('per_fed_avg', 'gossip'),
)


class Entry(NamedTuple):
  """One contender on one workload.

  Attributes:
    contender: Key of `contenders.registry.CONTENDERS`.
    workload: What it computes.
    measure: Position in `Case.entries` of the entry that this one's time is
      divided by; None for none.
    limit: Largest ratio that the project allows itself; None for no promise.
  """

  contender: str
  workload: workload_lib.Workload
  measure: int | None = None
  limit: float | None = None

  @property
  def label(self) -> str:
    """Returns what the entry is called in tables and error texts."""
    workload = self.workload
    return f'{self.contender}/{workload.method}/{workload.size}'


@dataclasses.dataclass(frozen=True)
class Case:
  """Entries whose rounds are timed in turns.

  Attributes:
    name: What `CASES` names.
    entries: Who takes part.
  """

  name: str
  entries: tuple[Entry, ...]


def _against_floor(
  name: str,
  workload: workload_lib.Workload,
  trainers: tuple[str, ...] = _TRAINERS,
) -> Case:
  """Returns a case of some trainers, the floor the measure."""
  floor = trainers.index(FLOOR)
  return Case(
    name,
    tuple(
      Entry(
        contender, workload, floor, 1.1 if contender == trainers[0] else None
      )
      for contender in trainers
    ),
  )


def _against_fed_avg(name: str, workload: workload_lib.Workload) -> Case:
  """Returns a case of an algorithm and FedAvg, on both of our runtimes."""
  fed_avg = dataclasses.replace(workload, algorithm=workload_lib.FED_AVG)
  return Case(
    name,
    (
      Entry('vectorized', workload, 1, 1.3),
      Entry('vectorized', fed_avg),
      Entry('tff', workload, 3),
      Entry('tff', fed_avg),
    ),
  )


def _against_pfedme(name: str, workload: workload_lib.Workload) -> Case:
  """Returns a case of pFedKM, with its k-means and without it, and pFedMe."""
  whole, apart, pfedme = (
    dataclasses.replace(workload, algorithm=algorithm)
    for algorithm in (
      workload_lib.PFEDKM,
      workload_lib.PFEDKM_WITHOUT_K_MEANS,
      workload_lib.PFEDME,
    )
  )
  return Case(
    name,
    (
      Entry('vectorized', whole, 2),
      Entry('vectorized', apart, 2, 1.15),
      Entry('vectorized', pfedme),
    ),
  )


def _mixtures(name: str, workload: workload_lib.Workload) -> Case:
  """Returns a case of PPFL and FedEM against FedAvg on the same clients."""
  ppfl, fed_em, fed_avg = (
    dataclasses.replace(workload, algorithm=algorithm)
    for algorithm in (
      workload_lib.PPFL,
      workload_lib.FED_EM,
      workload_lib.FED_AVG,
    )
  )
  return Case(
    name,
    (
      Entry('vectorized', ppfl, 2, 1.3),
      Entry('vectorized', fed_em, 2),
      Entry('vectorized', fed_avg),
    ),
  )


def _committee(name: str, workload: workload_lib.Workload) -> Case:
  """Returns a case of CMFL against FedAvg, all clients training in both.

  Two fifths of them are the committee. What CMFL has besides is that uploads
  are collected, scored and selected, and the members' vote.
  """
  cmfl, fed_avg = (
    dataclasses.replace(workload, algorithm=algorithm)
    for algorithm in (workload_lib.CMFL, workload_lib.FED_AVG)
  )
  return Case(
    name,
    (Entry('vectorized', cmfl, 1, 1.15), Entry('vectorized', fed_avg)),
  )


def _decomposed(name: str, workload: workload_lib.Workload) -> Case:
  """Returns a case of FedAvg on kernels in factors against ordinary kernels."""
  factored = dataclasses.replace(workload, num_atoms=9)
  return Case(
    name,
    (Entry('vectorized', factored, 1, 1.1), Entry('vectorized', workload)),
  )


def _every_algorithm(name: str, workload: workload_lib.Workload) -> Case:
  """Returns a case of all algorithms that train as FedAvg does, against it."""
  return Case(
    name,
    tuple(
      Entry('vectorized', dataclasses.replace(workload, algorithm=algorithm), 0)
      for algorithm in _EVERY_ALGORITHM
    ),
  )


def _linear_cost(name: str, workload: workload_lib.Workload) -> Case:
  """Returns a case of ten times the clients against the clients."""
  ten_times = dataclasses.replace(
    workload, num_clients=10 * workload.num_clients
  )
  return Case(
    name,
    (Entry('vectorized', ten_times, 1, 10.5), Entry('vectorized', workload)),
  )


def _registered(name: str, workload: workload_lib.Workload) -> Case:
  """Returns a case of a thousand times the population against the cohort.

  The large one is drawn anew in every round, so that nothing stays resident.
  The middle one has twice the population, drawn from and resident.
  """
  large = dataclasses.replace(
    workload, num_registered=1000 * workload.num_clients
  )
  twice = dataclasses.replace(workload, num_registered=2 * workload.num_clients)
  return Case(
    name,
    (
      Entry('vectorized', large, 2),
      Entry('vectorized', twice, 2),
      Entry('vectorized', workload),
    ),
  )


def _batching(name: str, workload: workload_lib.Workload) -> Case:
  return Case(
    name,
    (Entry('dataset', workload, 1, 1 / 5), Entry('tf_data', workload)),
  )


def _all() -> Mapping[str, Case]:
  workload = workload_lib.Workload
  tiny = workload(
    num_clients=6,
    num_examples=20,
    batch_size=5,
    input_shape=(8, 8, 1),
    hidden_size=8,
  )
  fed_soft = {'algorithm': workload_lib.FED_SOFT}
  ifca = {'algorithm': workload_lib.IFCA}
  three_classes = {'num_clients': 40, 'num_examples': 1000, 'hidden_size': 128}
  batching = {'algorithm': workload_lib.BATCHING}
  # A tenth of its 3,550 writers; they have 227 examples on average.
  femnist = workload(
    model='cnn', num_clients=355, num_examples=220, num_classes=62
  )
  cifar10 = workload(
    model='lenet',
    num_clients=10,
    num_examples=500,
    batch_size=10,
    input_shape=(32, 32, 3),
    learning_rate=0.01,
  )
  cases = (
    _against_floor('mlp100', workload(model='mlp')),
    _against_floor('mlp1000', workload(model='mlp', num_clients=1000)),
    _against_floor('lin1000', workload(model='linear', num_clients=1000)),
    _against_floor('cnn100', workload(model='cnn'), _CNN_TRAINERS),
    _against_fed_avg('fedsoft100', workload(**fed_soft)),
    _against_fed_avg('fedsoft_cnn100', workload(**fed_soft, model='cnn')),
    _against_floor('ifca', workload(**ifca), _IFCA_TRAINERS),
    _against_pfedme('pfedkm_lin40', workload(**three_classes, model='linear')),
    _against_pfedme('pfedkm_mlp40', workload(**three_classes, model='mlp')),
    # The sizes of PPFL's synthetic clients.
    _mixtures(
      'ppfl300',
      workload(
        model='linear',
        num_clients=300,
        num_examples=256,
        batch_size=128,
        input_shape=(150,),
        num_classes=2,
        num_clusters=3,
      ),
    ),
    _every_algorithm('algorithms', workload(model='mlp')),
    _committee(LARGE, femnist),
    _committee('committee71', dataclasses.replace(femnist, num_clients=71)),
    _committee(
      'committee71_step',
      dataclasses.replace(femnist, num_clients=71, num_examples=20),
    ),
    # The round of Chen and Qiu (2025) on CIFAR-10, but one local epoch.
    _decomposed('decomposed10', cifar10),
    _linear_cost('linear_mlp', workload(model='mlp')),
    _linear_cost('linear_lin', workload(model='linear')),
    _batching(
      'batching',
      workload(**batching, num_examples=1000, batch_size=128, num_batches=100),
    ),
    _registered('registered', workload(model='mlp')),
    # To try the harness, not to measure with.
    _against_floor('tiny', tiny),
    _against_floor('tiny_lin', dataclasses.replace(tiny, model='linear')),
    _against_floor(
      'tiny_cnn',
      dataclasses.replace(tiny, model='cnn', num_clients=2),
      _CNN_TRAINERS,
    ),
    _against_fed_avg('tiny_fedsoft', dataclasses.replace(tiny, **fed_soft)),
    _against_floor(
      'tiny_ifca',
      dataclasses.replace(tiny, **ifca, num_clients=8),
      _IFCA_TRAINERS,
    ),
    _against_pfedme('tiny_pfedkm', dataclasses.replace(tiny, num_clients=8)),
    _mixtures('tiny_ppfl', dataclasses.replace(tiny, model='linear')),
    _every_algorithm('tiny_algorithms', tiny),
    _committee('tiny_committee', tiny),
    _decomposed('tiny_decomposed', dataclasses.replace(tiny, model='cnn')),
    _linear_cost('tiny_linear', tiny),
    _registered('tiny_registered', tiny),
    _batching(
      'tiny_batching',
      dataclasses.replace(tiny, **batching, batch_size=8, num_batches=7),
    ),
  )
  return {case.name: case for case in cases}


CASES = _all()
# What `make bench` runs if it is not told.
MEASURED = tuple(
  name for name in CASES if not name.startswith('tiny') and name != LARGE
)
