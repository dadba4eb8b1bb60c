r"""pFedKM on its real data: 40 clients of three classes (paper, Table 2).

  python -m binaries.run --config=configs/pfedkm/three_classes.py:mnist_network \
    --workdir=runs/pfedkm_mnist --config.dataset.source.options.folder=DIR

Columns, data and readings of the paper: configs/three_classes.py. N = 40, T = 100
(CIFAR-10: 200), R = 10, lambda = 15, beta = 1, eta = 0.005 (0.03), and K = 2 unless
`--config.algorithm.num_clusters` is set.

All cells of pFedKM, and with K = 1 those of pFedMe (the two are the same bit for
bit), five seeds each, from data/mnist, data/fashion_mnist and data/cifar10:

  python -m binaries.sweep --config=configs/pfedkm/three_classes.py:mnist_logistic \
    --also=:mnist_network,:fashion_mnist_network,:cifar10_network \
    --grid=algorithm.num_clusters=1,2,3,4 --fixed_dataset --num_seeds=5 \
    --metrics=participating/test/personalized --workdir=runs/table_2_pfedkm

IFCA's row: configs/ifca/three_classes.py. Both sweeps on one page:
`binaries.compare --runs='runs/table_2_*/*/seed_*' --workdir=runs/table_2`.

The paper's test accuracies in % (K = 1: pFedMe), means of five trials, whose standard
deviations it gives as 0.01 to 0.14:

  K   mnist_logistic  mnist_network  fashion_mnist_network  cifar10_network
  1   91.49           90.73          85.03                  67.03
  2   93.18           92.71          87.32                  68.96
  3   93.69           92.98          90.54                  69.69
  4   94.84           94.57          91.32                  71.29

docs/reproduction/pfedkm.md compares them with the accuracies measured here.

Sensitivity to the paper's lambda, beta, R and eta, a grid axis each:

  python -m binaries.sweep --config=configs/pfedkm/three_classes.py:mnist_logistic \
    --grid=algorithm.local_training.proximal_weight=5.0,15.0,30.0 \
    --grid=algorithm.server_mixing=0.5,1.0,2.0 \
    --grid=algorithm.local_training.num_local_steps=5,10,20 \
    --grid=algorithm.local_training.client_learning_rate=0.005,0.05 \
    --fixed_dataset --num_seeds=1 --workdir=runs/sensitivity

More clusters than in the paper, and the best number by validation accuracy
(docs/sweeps.md, "Choosing a number of clusters"):

  python -m binaries.sweep \
    --config=configs/pfedkm/three_classes.py:mnist_network_validated \
    --grid=algorithm.num_clusters=1,2,3,4,5,6,7,8 --choose=algorithm.num_clusters \
    --fixed_dataset --num_seeds=5 --workdir=runs/num_clusters

To evaluate the local models, too, in the same run, set
`--config.algorithm.local_training.kept=both`.

The classes of the clients form a ring, so there are no ground-truth clusters.

The variant `smoke` needs no data: 12 clients share the scikit-learn digits for 2
rounds.
"""

import ml_collections

from configs import three_classes


def get_config(variant: str = 'mnist_network') -> ml_collections.ConfigDict:
  """Returns the config of one variant, see `three_classes.get_config`."""
  config = three_classes.get_config('pfedkm', variant)
  config.name = f'pFedKM on clients of three classes, {variant}'
  config.algorithm.update(local_training=three_classes.moreau_envelope(variant))
  return config
