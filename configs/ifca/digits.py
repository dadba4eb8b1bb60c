r"""IFCA on real handwritten digits, upright and rotated.

  python -m binaries.run --config=configs/ifca/digits.py \
    --workdir=runs/ifca_digits

The same 24 clients as configs/fed_soft/digits.py, and the same two initial
models. What IFCA finds hangs on them: over the seeds 0 to 4 of training
(`--config.seed`), the choices find the two kinds of clients within 30 rounds in
seeds 0, 2 and 3 (adjusted Rand index 1.0; best cluster model 93.7 % +- 0.3 on
held-out upright digits and 93.3 % +- 0.4 on rotated ones). In seeds 1 and 4 one
initial model is better for everybody, no client ever chooses the other, and the
run is FedAvg. Accuracy on the clients' test examples: 90.5 % +- 0.4 over all
five. A run takes 6 seconds of training on 2 cores.

The variant `smoke` is the same with 3 rounds.
"""

import ml_collections


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the config.

  Args:
    variant: `'full'` or `'smoke'`.
  """
  config = ml_collections.ConfigDict()
  config.name = 'IFCA on digits, 10:90'
  config.seed = 0

  config.dataset = {
    'source': {'name': 'digits', 'options': {}},
    'distributions': {'kind': 'rotations', 'quarter_turns': (0, 1)},
    'partition': {'law': '10:90', 'num_clients': 24, 'num_unseen_clients': 4},
    'sizes': {'law': 'uniform', 'minimum': 40, 'maximum': 80},
    'splits': {
      'validation_ratio': 0.2,
      'test_ratio': 0.2,
      'held_out_fraction': 0.2,
    },
    'seed': 0,
    'num_shards': 2,
  }
  config.model = {
    'name': 'mlp',
    'hidden_sizes': (64,),
    'normalization': 'none',
  }
  config.algorithm = {
    'name': 'ifca',
    'num_clusters': 2,
    'cohort_size': 12,
    'averaging': 'models',
    'weighting': 'uniform',
    'server_learning_rate': 1.0,
    'loss_scale': 1.0,
    'local_training': {
      'num_local_epochs': 10,
      'batch_size': 10,
      'optimizer': {'name': 'sgd', 'learning_rate': 0.1},
    },
  }
  config.training = {
    'num_rounds': 30,
    'evaluation_interval': 1,
    'checkpoint_interval': 10,
    'client_states': 'memory',
  }
  config.runtime = {
    'name': 'vectorized',
    'vectorized': {
      'clients_per_block': 0,
      'num_parallel_blocks': 0,
      'memory_budget_mib': 0,
    },
    'tff': {'workers': ()},
  }
  if variant == 'smoke':
    config.training.num_rounds = 3
  elif variant != 'full':
    raise ValueError(f"variant must be 'full' or 'smoke', got {variant!r}")
  return config
