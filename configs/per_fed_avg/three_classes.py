r"""Per-FedAvg on pFedKM's MNIST: 40 clients of three classes.

  python -m binaries.run --config=configs/per_fed_avg/three_classes.py:mnist_network \
    --workdir=runs/per_fed_avg_mnist --config.dataset.source.options.folder=DIR

The clients and network of configs/pfedkm/three_classes.py. Tang, Guo and Guo (2021)
mention Per-FedAvg but did not run it, so the constants are ours: 10 steps of four
gradients each on batches of 20, about the work of pFedKM's 50 gradients, and
learning rates of 0.03.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import three_classes


def get_config(variant: str = 'mnist_network') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `three_classes.get_config`."""
  config = three_classes.get_config('per_fed_avg', variant, ('mnist_network',))
  config.name = f'Per-FedAvg on clients of three classes, {variant}'
  config.algorithm.update(
    cohort_size=config.dataset.partition.num_clients,
    inner_learning_rate=0.03,
    client_learning_rate=0.03,
    batch_size=20,
  )
  return config
