"""Shared config of CMFL's experiments (Che et al., TPDS 2022).

`configs/cmfl/*.py` extend it. The paper's sizes are the default: 10 % of all
clients are active in a round, 40 % of these are the committee, and 40 % are
averaged (alpha = omega = 40, section 6.1). In the paper alpha is a share of the
training clients; in the authors' published runs it is a share of all active clients,
which upload local models and train one epoch per round in batches of 32.

Variants:
  similar       strategy I of selection: the clients most similar to the committee
  dissimilar    strategy II: the least similar, for settings without attackers
  random        the control of both: training clients drawn at random
  everybody     the control: all training clients are averaged (FedAvg over them)
  attacked      strategy I, and 10 % of all clients send their updates with the
                opposite sign, also as committee members. The falsified quantity
                is the update (attack.space), as in the paper's text; the
                authors' code falsifies the model. docs/robustness.md explains
                why that decides whether a committee detects an attack
  repo          the authors' code: `similar` with its distance (weight by weight,
                not squared) and learning rate (0.005), agreement without votes,
                and the attacks of its published curves, which attack.name and
                attack.fraction switch on: models are falsified, and scaling
                starts at 0, not 0.5
  literal       as the paper's text says, but for its mini-batches, whose size
                it does not give: one step on all examples, clients upload
                updates, and alpha is a share of the training clients. For tau
                steps on mini-batches of 32 set local_training.num_local_steps
                to tau and batch_size to 32; for Eq. 5 as printed also upload to
                last_gradient, and server_learning_rate to eta_t
  smoke         3 rounds of `similar` on the scikit-learn digits, without any data
"""

import ml_collections

from configs import base

VARIANTS = (
  'similar',
  'dissimilar',
  'random',
  'everybody',
  'attacked',
  'literal',
  'repo',
  'smoke',
)
_SELECTIONS = {
  'dissimilar': 'least_similar',
  'random': 'random',
  'everybody': 'all',
}


def get_config(
  variant: str, num_rounds: int, *, model: str, source: str, law: str
) -> ml_collections.ConfigDict:
  """Returns the config of one variant, evaluated ten times during training.

  Args:
    variant: One of `VARIANTS`.
    num_rounds: Of all variants but `smoke`, which has 3.
    model: Name of the model.
    source: Name of the dataset's source.
    law: Scheme of the dataset's partition.
  """
  base.check(variant, VARIANTS)
  config = base.experiment('cmfl', model=model, source=source, law=law)
  config.algorithm.update(
    upload='model',
    audit='digests',
    committee={
      'aggregation_base': 'active',
      'selection': _SELECTIONS.get(variant, 'most_similar'),
    },
    local_training={'batch_size': 32},
  )
  if variant == 'attacked':
    config.attack.update(name='sign_flip', fraction=0.1)
  elif variant == 'literal':
    config.algorithm.update(
      upload='update',
      committee={'aggregation_base': 'training'},
      # More than any client has: one step per epoch.
      local_training={'batch_size': 10_000},
    )
  elif variant == 'repo':
    config.algorithm.update(
      committee={'distance': 'sum_over_weights'},
      consensus={'protocol': 'assumed'},
      local_training={'optimizer': {'learning_rate': 0.005}},
    )
    config.attack.update(space='model', minimum_scale=0.0)
  elif variant == 'smoke':
    config.algorithm.committee.active_rate = 1.0
    num_rounds = 3
  config.training.update(
    num_rounds=num_rounds,
    evaluation_interval=max(num_rounds // 10, 1),
    checkpoint_interval=20,
  )
  return config


def get_smoke(model: str) -> ml_collections.ConfigDict:
  """Returns `smoke`: 12 clients of two classes of the digits each."""
  config = get_config('smoke', 3, model=model, source='digits', law='shards')
  config.dataset.splits.test_ratio = 0.2
  config.dataset.partition.num_clients = 12
  config.dataset.partition.options.shards_per_client = 2
  return config


def get_text_smoke() -> ml_collections.ConfigDict:
  """Returns `smoke` for an experiment whose own model takes no images."""
  config = get_smoke('mlp')
  config.model.hidden_sizes = (16,)
  return config


def get_text(variant: str, *, model: str, source: str):
  """Returns the natural clients of a text source, 80 % of each for training."""
  config = get_config(variant, 200, model=model, source=source, law='natural')
  config.dataset.source.options.folder = f'data/{source}'
  config.dataset.splits.update(
    test_ratio=0.25, held_out_fraction=0.0, split_by='client'
  )
  config.dataset.num_shards = 4
  return config
