"""Mixtures of source distributions: mixture weights of each client.

FedSoft (arXiv 2112.06053), section "Experiments": partitions 10:90, 30:70,
linear and random. n_ks is the largest-remainder rounding of u_ks * n_k.
"""

import re

import numpy as np

from tff_algos.core import checks, errors, seeds
from tff_algos.core.structures import Array

IID = 'iid'
LINEAR = 'linear'
RANDOM = 'random'
LAWS = (IID, LINEAR, RANDOM)
_SHARES = re.compile(r'\d{1,3}(:\d{1,3})+')


def parse_shares(law: str) -> tuple[float, ...] | None:
  """Returns the shares of a scheme such as `'10:90'`, None for other ones."""
  if not _SHARES.fullmatch(law):
    return None
  percents = [int(percent) for percent in law.split(':')]
  if sum(percents) != 100:
    return None
  return tuple(percent / 100 for percent in percents)


def build_mixtures(
  law: str, num_clients: int, num_sources: int, generator: np.random.Generator
) -> Array:
  """Returns the mixture weights of each client.

  Args:
    law: One of `LAWS`, or shares in percent such as `'10:90'`: the clients
      are as many equal blocks as there are shares, and in block b the shares
      are rolled to the right by b.
    num_clients: Number of rows, N.
    num_sources: Number of columns, S; one that passed `check_num_sources`.
    generator: Randomness of scheme `'random'`.

  Returns:
    float64 `[num_clients, num_sources]`, rows sum to 1.
  """
  if law == RANDOM:
    return random_mixtures(num_clients, num_sources, generator)
  if law == IID:
    return np.full((num_clients, num_sources), 1 / num_sources)
  if law == LINEAR:
    share = (np.arange(num_clients) + 0.5) / num_clients
    return np.stack([share, 1 - share], axis=1)
  shares = checks.check_given('law', parse_shares(law))
  blocks = np.stack([np.roll(shares, b) for b in range(num_sources)])
  # Rows must sum to 1, not to 0.9999999999999999.
  blocks[:, -1] = np.maximum(1 - blocks[:, :-1].sum(axis=1), 0)
  return blocks[block_of(num_clients, num_sources)]


def check_num_sources(law: str, num_sources: int) -> None:
  """Raises ConfigError if a scheme needs another number of distributions."""
  shares = parse_shares(law)
  needed = (
    2 if law == LINEAR else num_sources if shares is None else len(shares)
  )
  if num_sources != needed:
    raise errors.ConfigError(
      f'partition.law {law!r} mixes exactly {needed} source distributions, '
      f'there are {num_sources}; use {RANDOM!r} or {IID!r}'
    )


def block_of(num_clients: int, num_blocks: int) -> Array:
  """Returns the block of each client, int64 `[num_clients]`.

  Blocks are consecutive clients; their lengths differ by one at most, such as
  27, 27 and 26 of 80.
  """
  return np.arange(num_clients) * num_blocks // num_clients


def random_mixtures(
  num_clients: int, num_sources: int, generator: np.random.Generator
) -> Array:
  """Returns the lengths of [0, 1] cut at S - 1 uniform points.

  The rows are uniform on the simplex, Dirichlet(1, ..., 1).
  """
  cuts = np.sort(generator.random((num_clients, num_sources - 1)), axis=1)
  return np.diff(cuts, axis=1, prepend=0.0, append=1.0)


def mixture_generator(seed: int, group: str) -> np.random.Generator:
  """Returns the random generator of one group's mixtures."""
  return seeds.numpy_generator(seed, f'partition/{group}/mixtures')
