"""What a contender computes: sizes, and the examples that follow from them.

NumPy and the standard library only: a contender may live in an environment
without TensorFlow.
"""

import dataclasses
import functools
import json
import pathlib

import numpy as np

FED_AVG = 'fed_avg'
FED_SOFT = 'fed_soft'
IFCA = 'ifca'
PFEDME = 'pfedme'
PFEDKM = 'pfedkm'
PFEDKM_WITHOUT_K_MEANS = 'pfedkm_without_k_means'
FED_EM = 'fed_em'
PPFL = 'ppfl'
CMFL = 'cmfl'
PER_FED_AVG = 'per_fed_avg'
BATCHING = 'batching'

# Their clients come in as many planted groups as there are clusters.
_GROUPED = (IFCA, PFEDME, PFEDKM, PFEDKM_WITHOUT_K_MEANS)

_WORKLOAD = 'workload.json'
_WEIGHTS = 'initial_weights.npz'
_ORDERS = 'orders.npy'
DATASET = 'dataset'


@dataclasses.dataclass(frozen=True)
class Workload:
  """One algorithm on one population.

  Attributes:
    algorithm: One of the names above, of which `'batching'` trains nothing, or
      of any registered algorithm.
    model: `'linear'`, `'mlp'`, `'cnn'` or, for our own contenders, `'lenet'`.
    num_atoms: Atoms of each convolution, for our own contenders; 0 for ordinary
      kernels.
    num_clients: Take part in every round: all, or as many of the registered.
    num_registered: Clients of the population; 0 for `num_clients`. Those beyond
      have the examples of the first ones.
    num_examples: Examples of each client.
    batch_size: Examples of a local step; divides `num_examples` in training.
    num_batches: For batching: batches drawn from each client.
    input_shape: Of one example.
    hidden_size: Units of the MLP's one hidden layer.
    num_classes: Labels are 0 to num_classes - 1.
    num_clusters: For the algorithms that have several.
    learning_rate: Of plain SGD at the client; one epoch a round. pFedMe and
      pFedKM take steps of their own.
    seed: Of the examples, the initial weights and the orders.
  """

  algorithm: str = FED_AVG
  model: str = 'mlp'
  num_atoms: int = 0
  num_clients: int = 100
  num_registered: int = 0
  num_examples: int = 100
  batch_size: int = 20
  num_batches: int = 0
  input_shape: tuple[int, ...] = (28, 28, 1)
  hidden_size: int = 200
  num_classes: int = 10
  num_clusters: int = 4
  learning_rate: float = 0.1
  seed: int = 0

  @property
  def client_ids(self) -> tuple[str, ...]:
    """Returns the clients' ids, in the order of the population."""
    num_clients = max(self.num_clients, self.num_registered)
    return tuple(f'client_{i:05d}' for i in range(num_clients))

  @property
  def size(self) -> str:
    """Returns the number of clients in words, such as `'100 of 5000'`."""
    if not self.num_registered:
      return str(self.num_clients)
    return f'{self.num_clients} of {self.num_registered}'

  @property
  def method(self) -> str:
    """Returns the algorithm in words, such as `'fed_avg, 9 atoms'`."""
    if not self.num_atoms:
      return self.algorithm
    return f'{self.algorithm}, {self.num_atoms} atoms'

  def examples(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns all examples: ten noisy patterns, of the size of an image's.

    For IFCA, pFedMe and pFedKM every cluster has patterns of its own, and
    client i those of cluster i % num_clusters: rounding can then hardly turn a
    choice.

    Returns:
      x float32 `[num_clients, num_examples, *input_shape]`, y int32
      `[num_clients, num_examples]`.
    """
    generator = np.random.Generator(np.random.Philox(self.seed))
    groups = self.num_clusters if self.algorithm in _GROUPED else 1
    shape = (groups, self.num_classes, *self.input_shape)
    patterns = 0.2 * generator.standard_normal(shape, dtype=np.float32)
    shape = (self.num_clients, self.num_examples)
    y = generator.integers(0, self.num_classes, shape).astype(np.int32)
    x = np.empty((*shape, *self.input_shape), np.float32)
    # Client by client, so that the peak of memory is the examples themselves.
    for i, (client, labels) in enumerate(zip(x, y, strict=True)):
      generator.standard_normal(out=client, dtype=np.float32)
      client *= 0.2
      client += patterns[i % groups, labels]
    return x, y


class Inputs:
  """What every contender of a case is given, as files in a folder.

  Attributes:
    folder: Where the files lie; for batching also the published dataset.
    workload: The sizes.
  """

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self.workload = _read(folder / _WORKLOAD)

  @functools.cached_property
  def examples(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns `Workload.examples`, made once."""
    return self.workload.examples()

  @property
  def initial_weights(self) -> dict[str, np.ndarray]:
    """Returns name -> weights before round 1."""
    with np.load(self.folder / _WEIGHTS) as saved:
      return {name: saved[name] for name in saved.files}

  def order(self, round_num: int) -> np.ndarray:
    """Returns which rows each local step of a round reads.

    Args:
      round_num: From 1.

    Returns:
      int32 `[num_clients, num_steps, batch_size]`.
    """
    return np.load(self.folder / _ORDERS, mmap_mode='r')[round_num - 1]


def write_inputs(
  folder: pathlib.Path,
  workload: Workload,
  initial_weights: dict[str, np.ndarray],
  orders: np.ndarray,
) -> None:
  """Writes what `Inputs` reads.

  Args:
    folder: Exists.
    workload: The sizes.
    initial_weights: name -> weights before round 1.
    orders: int32 `[num_rounds, num_clients, num_steps, batch_size]`.
  """
  (folder / _WORKLOAD).write_text(json.dumps(dataclasses.asdict(workload)))
  np.savez(folder / _WEIGHTS, **initial_weights)
  np.save(folder / _ORDERS, orders)


def _read(path: pathlib.Path) -> Workload:
  values = json.loads(path.read_text())
  values['input_shape'] = tuple(values['input_shape'])
  return Workload(**values)
