"""Verification of audit logs as a program."""

import numpy as np
import pytest

from tests.testing import audited
from tff_algos.algorithms.cmfl.audit import audit_log
from tff_algos.experiments import datasets, experiment, training


@pytest.mark.slow
def test_the_program_names_the_round_that_does_not_verify(tmp_path, launcher):
  """One weight of one upload of round 3 is another, digest and all."""
  config = experiment.parse(audited.make_config())
  datasets.build(config.dataset, tmp_path)
  training.train(config, tmp_path)
  path = tmp_path / 'audit' / 'round_000003.npz'
  arrays = audit_log.read_arrays(tmp_path, 3)
  for name in arrays:
    if name.startswith('upload:'):
      arrays[name] = arrays[name] + np.float32(0.01)
  np.savez(path, **arrays)
  program = launcher.run(
    'binaries.audit',
    '--config=configs/cmfl/regressions.py:smoke',
    f'--workdir={tmp_path}',
    '--config.algorithm.audit=uploads',
  )
  assert program.returncode == 1
  assert '1 of 4 rounds do not verify' in program.stderr
  assert 'round 3: the upload of' in program.stderr
  rows = (tmp_path / 'evaluation' / 'audit.csv').read_text().splitlines()
  assert [row[:6] for row in rows[1:]] == [f'{n},True' for n in (1, 2, 3, 4)]
