"""Provenance of a run: git revision, locked environment, machine."""

import functools
import hashlib
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

# What decides in a checkout what a run computes.
_CODE = (
  *('tff_algos', 'pipelines', 'binaries', 'configs'),
  'docs/reproduction/fed_soft_network.py',
)
_ROOT = pathlib.Path(__file__).parents[2]
_TIMEOUT_SECONDS = 10


@functools.cache
def describe(accelerator: str = '') -> dict[str, Any]:
  """Returns the provenance of this process, JSON-ready.

  Args:
    accelerator: Kind of the devices of the runtime `pjrt`; empty for none.

  Returns:
    `revision`, the commit of the checkout, 40 hex digits, and `is_clean`,
    whether the code has no changes since; both None outside a checkout, or
    without git. `lock_hash`, of the lock that the environment was made from,
    16 hex digits; None for an environment without one. `machine`: `cpu`, the
    name of the processor; `num_cores` of this process; `memory_gib`; and, if
    there is one, `accelerator`.
  """
  return {
    **_checkout(_ROOT),
    'lock_hash': _lock_hash(pathlib.Path(sys.prefix)),
    'machine': {
      'cpu': _cpu_name(pathlib.Path('/proc/cpuinfo')),
      'num_cores': len(os.sched_getaffinity(0)),
      'memory_gib': round(
        os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30, 1
      ),
      **({'accelerator': accelerator} if accelerator else {}),
    },
  }


def _checkout(root: pathlib.Path) -> dict[str, Any]:
  """Returns `revision` and `is_clean` of a folder."""
  git = root / '.git'  # A file in a worktree of git's.
  revision = changes = None
  if git.exists():
    revision = _git(git, root, 'rev-parse', 'HEAD')
    changes = _git(git, root, 'status', '--porcelain', '--', *_CODE)
  return {
    'revision': revision,
    'is_clean': None if changes is None else not changes,
  }


def _git(git: pathlib.Path, root: pathlib.Path, *arguments: str) -> str | None:
  """Returns what git prints; None if it cannot be run or refuses."""
  command = ['git', '--no-optional-locks', f'--git-dir={git}']
  try:
    return subprocess.run(
      [*command, f'--work-tree={root}', *arguments],
      cwd=root,
      check=True,
      capture_output=True,
      text=True,
      timeout=_TIMEOUT_SECONDS,
    ).stdout.strip()
  except (OSError, subprocess.SubprocessError):
    return None


def _lock_hash(environment: pathlib.Path) -> str | None:
  """Returns the hash of an environment's lock, which `make env` left there."""
  locks = sorted(environment.glob('made-from/*.lock'))
  if not locks:
    return None
  return hashlib.sha256(locks[0].read_bytes()).hexdigest()[:16]


def _cpu_name(cpuinfo: pathlib.Path) -> str | None:
  """Returns the first name of a processor in `/proc/cpuinfo`."""
  try:
    found = re.search(r'^model name\s*:\s*(.+)$', cpuinfo.read_text(), re.M)
  except OSError:
    return None
  return found[1] if found else None
