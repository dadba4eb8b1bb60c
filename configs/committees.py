"""CMFL's experiments (Che et al., TPDS 2022): what its configs share.

`configs/cmfl/*.py` add theirs. The paper's sizes are the default: 10 % of all
clients are active in a round, 40 % of these are the committee, and 40 % are
averaged (alpha = omega = 40, section 6.1). The paper takes alpha of the training
clients; the authors' published runs take it of all active clients, exchange local
models and train one epoch a round by batches of 32.

Variants:
  similar       strategy I of selection: those nearest to the committee
  dissimilar    strategy II: those farthest from it, for settings without attackers
  everybody     the control: all training clients are averaged (FedAvg over them)
  attacked      strategy I, and 10 % of all clients send their updates with the
                opposite sign, on a committee, too. What is falsified is the
                update (attack.space), as in the paper's text; the authors'
                code falsifies the model. docs/robustness.md says why that
                decides whether a committee sees an attack at all
  repo          the authors' code: `similar` with its distance (weight by weight,
                not squared) and learning rate (0.005), agreement without votes,
                and the attacks of its published curves, which attack.name and
                attack.fraction switch on: models are falsified, and scaling
                starts at 0, not 0.5
  literal       the paper's words: one step on all examples, updates are sent, and
                alpha is a share of the training clients. For tau steps on
                mini-batches of 32 set local_training.num_local_steps to tau and
                batch_size to 32; for Eq. 5 to the letter also upload to
                last_gradient, and server_learning_rate to eta_t
  smoke         3 rounds of `similar` on the scikit-learn digits, without any data
"""

import ml_collections

from configs import falling_rates, pretrained

VARIANTS = (
  'similar',
  'dissimilar',
  'everybody',
  'attacked',
  'literal',
  'repo',
  'smoke',
)
_SELECTIONS = {'dissimilar': 'least_similar', 'everybody': 'all'}


def get_config(variant: str, num_rounds: int) -> ml_collections.ConfigDict:
  """Returns the config of one variant without dataset, model and name.

  Args:
    variant: One of `VARIANTS`.
    num_rounds: Of all variants but `smoke`, which has 3.
  """
  check(variant)
  is_smoke, is_literal = variant == 'smoke', variant == 'literal'
  is_repo = variant == 'repo'
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.algorithm = {
    'name': 'cmfl',
    'upload': 'update' if is_literal else 'model',
    'server_learning_rate': 1.0,
    'rate_offset': 0.0,
    'loss_scale': 1.0,
    'audit': 'digests',
    'committee': {
      'active_rate': 1.0 if is_smoke else 0.1,
      'committee_rate': 0.4,
      'aggregation_rate': 0.4,
      'aggregation_base': 'training' if is_literal else 'active',
      'selection': _SELECTIONS.get(variant, 'most_similar'),
      'election_center': 0.5,
      'distance': 'sum_over_weights' if is_repo else 'squared',
    },
    'consensus': consensus('assumed' if is_repo else 'simulated'),
    'local_training': {
      'num_local_epochs': 1,
      # More than any client has: one step.
      'batch_size': 10_000 if is_literal else 32,
      'optimizer': {
        'name': 'sgd',
        'learning_rate': 0.005 if is_repo else 0.1,
      },
      'augmentation': 'none',
      'solver': 'descent',
      'weight_decay': 0.0,
      'num_local_steps': 0,
    },
  }
  config.training = training(3 if is_smoke else num_rounds)
  config.falling_rates = falling_rates.none()
  config.runtime = runtime()
  config.attack = {
    'name': 'sign_flip' if variant == 'attacked' else 'none',
    'fraction': 0.1 if variant == 'attacked' else 0.0,
    'client_ids': (),
    'space': 'model' if is_repo else 'update',
    'minimum_scale': 0.0 if is_repo else 0.5,
    'noise_deviation': 1.0,
    'num_deviations': 0.0,
    'ipm_factor': 0.5,
    'perturbation': 'std',
    'accepted_share': 0.4,
  }
  return config


def check(variant: str) -> None:
  """Raises ValueError if it is none of `VARIANTS`."""
  if variant not in VARIANTS:
    raise ValueError(
      f'variant must be one of {", ".join(VARIANTS)}, got {variant!r}'
    )


def consensus(protocol: str = 'simulated') -> dict:
  """Returns honest members, who vote message by message by default."""
  return {
    'protocol': protocol,
    'max_views': 20,
    'timeout_seconds': 1.0,
    'malicious_fraction': 0.0,
    'behaviour': 'lying',
  }


def training(num_rounds: int) -> dict:
  """Returns so many rounds, of which a tenth is evaluated."""
  return {
    'num_rounds': num_rounds,
    'evaluation_interval': max(num_rounds // 10, 1),
    'checkpoint_interval': 20,
    'client_states': 'memory',
    'restarts': {'num_restarts': 1, 'num_rounds': 5},
    'dropout_rate': 0.0,
  }


def runtime() -> dict:
  """Returns the runtime with all defaults."""
  return {
    'name': 'vectorized',
    'vectorized': {
      'clients_per_block': 0,
      'num_parallel_blocks': 0,
      'memory_budget_mib': 0,
    },
    'tff': {'workers': ()},
  }


def digits() -> dict:
  """Returns the dataset of `smoke`: 12 clients of two classes each."""
  return {
    'source': {'name': 'digits', 'options': {}},
    'distributions': {'kind': 'identity'},
    'partition': partition(12),
    'splits': splits(),
    'seed': 0,
    'num_shards': 1,
  }


def partition(num_clients: int) -> dict:
  """Returns clients of mostly two classes each."""
  return {
    'law': 'shards',
    'num_clients': num_clients,
    'options': {'shards_per_client': 2, 'distinct_classes': True},
  }


def splits() -> dict:
  """Returns a part of every client for tests, and one for the global model."""
  return {
    'validation_ratio': 0.0,
    'test_ratio': 0.2,
    'held_out_fraction': 0.2,
  }


def natural_text(source: dict, options: dict, num_clients: int | None) -> dict:
  """Returns clients as a source of text has them, 80 % of each to train.

  Args:
    source: Name and options.
    options: Of the partition, by which clients are left out.
    num_clients: How many of the others are drawn; None for all.
  """
  return {
    'source': source,
    'distributions': {'kind': 'identity'},
    'partition': {
      'law': 'natural',
      'num_clients': num_clients,
      'options': options,
    },
    'splits': {
      'validation_ratio': 0.0,
      'test_ratio': 0.25,
      'held_out_fraction': 0.0,
      'split_by': 'client',
    },
    'seed': 0,
    'num_shards': 4,
  }


def small_perceptron() -> dict:
  """Returns a model of `digits` where the experiment's own takes no images."""
  return {
    'name': 'mlp',
    'hidden_sizes': (16,),
    'normalization': 'none',
    'compute_dtype': 'float32',
    'pretrained': pretrained.none(),
  }
