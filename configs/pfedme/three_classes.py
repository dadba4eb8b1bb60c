r"""pFedMe on pFedKM's real data: 40 clients of three classes.

  python -m binaries.run --config=configs/pfedme/three_classes.py:mnist_network \
    --workdir=runs/pfedme_mnist --config.dataset.source.options.folder=DIR

The data, models and constants of configs/pfedkm/three_classes.py with one global
model; that file has the results of Tang, Guo and Guo (2021), Table 2, and a sweep in
which K = 1 equals this config. pFedMe alone, in all columns with five seeds:

  python -m binaries.sweep --config=configs/pfedme/three_classes.py:mnist_logistic \
    --also=:mnist_network,:fashion_mnist_network,:cifar10_network \
    --fixed_dataset --num_seeds=5 --metrics=participating/test/personalized \
    --workdir=runs/table_2_pfedme

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import three_classes


def get_config(variant: str = 'mnist_network') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `three_classes.get_config`."""
  config = three_classes.get_config('pfedme', variant)
  config.name = f'pFedMe on clients of three classes, {variant}'
  config.algorithm.update(local_training=three_classes.moreau_envelope(variant))
  return config
