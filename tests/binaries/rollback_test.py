"""Rollback as a program, on the export path of a run."""

import shutil

from tff_algos.export import labels, manifest, releases


def test_older_version_becomes_current(launcher, finished_run, tmp_path):
  target = tmp_path / 'export'
  shutil.copytree(finished_run.folder / 'export', target)
  # Version 2 is another one.
  bundles = {model: tmp_path / model / '1' for model in releases.MODELS}
  for model, folder in bundles.items():
    shutil.copytree(target / model / '1', folder)
    path = folder / manifest.EXTRA_FOLDER / manifest.MANIFEST_FILE
    path.write_text(path.read_text() + '\n')
  with releases.opened(target) as path:
    path.release(bundles, path.history[0], {})
    expected = path.history[-1].version + 1
  program = launcher.run(
    'binaries.rollback', f'--export_dir={target}', '--version=1'
  )
  assert program.returncode == 0, program.stderr
  words = f'Version {expected} is current, with the models of version 1.'
  assert program.said[-1].endswith(words)
  assert not program.complaints

  # A canary still answers its share; then a damaged file is no obstacle.
  labelled = labels.Labels({'stable': 1, 'canary': 2}, 0.5)
  labels.assign(target, ['cluster_models'], labelled)
  for text in (
    'Labels still send requests to other models: canary of cluster_models is '
    'version 2. Change them with binaries.label.',
    'labels.json cannot be used',
  ):
    program = launcher.run(
      'binaries.rollback', f'--export_dir={target}', '--version=1'
    )
    assert program.returncode == 0, program.stderr
    assert text in program.said[-1]
    (target / labels.LABELS_FILE).write_text('{')


def test_missing_path(launcher, tmp_path):
  program = launcher.run(
    'binaries.rollback', f'--export_dir={tmp_path}/nothing'
  )
  assert program.returncode == 1
  assert 'there is no export path' in program.said[-1]
  assert not (tmp_path / 'nothing').exists()
