r"""L2GD on pFedKM's MNIST: 40 clients of three classes.

  python -m binaries.run --config=configs/l2gd/three_classes.py:mnist_network \
    --workdir=runs/l2gd_mnist --config.dataset.source.options.folder=DIR

The clients and network of configs/pfedkm/three_classes.py. Tang, Guo and Guo (2021)
mention these methods but did not run them, so the constants are ours: 10 full-batch
steps per round on average, and aggregation steps move a fifth of the way to the mean.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import three_classes


def get_config(variant: str = 'mnist_network') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `three_classes.get_config`."""
  config = three_classes.get_config('l2gd', variant, ('mnist_network',))
  config.name = f'L2GD on clients of three classes, {variant}'
  config.algorithm.update(proximal_weight=0.2, aggregation_prob=0.1)
  return config
