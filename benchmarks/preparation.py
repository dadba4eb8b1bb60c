"""Makes what the contenders of a case share: weights, orders, a dataset."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks import algorithms
from benchmarks import workload as workload_lib
from tff_algos.core import algorithm as algorithm_lib
from tff_algos.core import seeds
from tff_algos.runtimes.vectorized import vectorization
from tff_algos.stages.client import local_training
from tff_algos.training import loop

# The phase of training, in all our algorithms: the purpose of its seeds.
_TRAINING_PHASE = 'train'


def prepare(
  workload: workload_lib.Workload, folder: pathlib.Path, num_rounds: int
) -> None:
  """Writes the inputs of a workload.

  Args:
    workload: What to prepare.
    folder: Exists, empty.
    num_rounds: Rounds that will be run at most.
  """
  if workload.algorithm == workload_lib.BATCHING:
    workload_lib.write_inputs(folder, workload, {}, np.zeros([0], np.int32))
    _publish_dataset(workload, folder)
    return
  algorithm = algorithms.build_algorithm(workload)
  state = loop.initial_server_state(
    algorithm, workload.num_clients, workload.seed
  )
  workload_lib.write_inputs(
    folder,
    workload,
    cluster_weights(algorithm, state),
    orders(workload, _TRAINING_PHASE, range(1, num_rounds + 1)),
  )


def cluster_weights(
  algorithm: algorithm_lib.FederatedAlgorithm, server_state: object
) -> dict[str, np.ndarray]:
  """Returns name -> weights; without the cluster axis if there is one model."""
  stacked = algorithm.cluster_weights(server_state)
  first = 0 if algorithm.num_clusters == 1 else slice(None)
  return {name: np.asarray(leaf)[first] for name, leaf in stacked.items()}


def orders(
  workload: workload_lib.Workload, purpose: str, rounds: Sequence[int]
) -> np.ndarray:
  """Returns the rows of each local step, as our algorithms will draw them.

  Args:
    workload: The sizes.
    purpose: Of the phase's seeds.
    rounds: Numbers of rounds.

  Returns:
    int32 `[rounds, num_clients, num_steps, batch_size]`.
  """
  client_seeds = [
    seeds.derive_seed(workload.seed, purpose, round_num, client_id)
    for round_num in rounds
    for client_id in workload.client_ids[: workload.num_clients]
  ]
  mask = tf.ones([workload.num_examples])
  config = algorithms.local_training_config(workload)

  def draw(client_seeds):
    return vectorization.map_stacked(
      lambda seed: local_training.draw_batches(seed, mask, config).positions,
      client_seeds,
    )

  stacked = tf.constant(np.stack(client_seeds))
  traced = tf.function(draw, autograph=False).get_concrete_function(stacked)
  drawn = traced(stacked).numpy()
  return drawn.reshape(len(rounds), workload.num_clients, *drawn.shape[1:])


def _publish_dataset(
  workload: workload_lib.Workload, folder: pathlib.Path
) -> None:
  """Builds the federated dataset of a batching case with the pipeline."""
  from pipelines import build_dataset, options  # noqa: PLC0415 (Beam is slow)

  x, y = workload.examples()
  count = workload.num_clients * workload.num_examples
  size = workload.input_shape[:2]
  images = np.clip(128 + 128 * x, 0, 255).astype(np.uint8)
  raw = folder / 'raw'
  raw.mkdir()
  _write_idx(raw / 'images', images.reshape(count, *size))
  _write_idx(raw / 'labels', y.reshape(count).astype(np.uint8))
  config = options.DatasetConfig(
    options.SourceConfig(
      'idx',
      {
        'folder': str(raw),
        'num_classes': workload.num_classes,
        'train_images': 'images',
        'train_labels': 'labels',
        'test_images': '',
        'test_labels': '',
      },
    ),
    options.PartitionConfig('iid', num_clients=workload.num_clients),
    splits=options.SplitsConfig(held_out_fraction=0.0),
    seed=workload.seed,
  )
  build_dataset.build(config, folder / workload_lib.DATASET)


def _write_idx(path: pathlib.Path, array: np.ndarray) -> None:
  """Writes an IDX file of bytes: magic number, sizes, values."""
  header = [0x0800 + array.ndim, *array.shape]
  path.write_bytes(np.array(header, '>i4').tobytes() + array.tobytes())
