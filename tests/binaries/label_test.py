"""Labels of versions, written by the program."""

import os

import pytest

from tests.testing import published, s3_server
from tff_algos.core import cache_folder
from tff_algos.export import labels
from tff_algos.stores import mirror as mirror_lib


@pytest.fixture(name='folder')
def make_folder(tmp_path):
  for model in ('cluster_models', 'personalized_models'):
    for version in (3, 4):
      (tmp_path / model / str(version)).mkdir(parents=True)
  return tmp_path


def test_labels_of_both_models(launcher, folder):
  program = launcher.run(
    'binaries.label',
    f'--export_dir={folder}',
    '--labels=stable=3,canary=4',
    '--canary_share=0.1',
  )
  assert program.returncode == 0, program.stderr
  words = 'Labels of cluster_models and personalized_models: stable 3, canary 4'
  assert words in program.said[-1]
  expected = labels.Labels({'stable': 3, 'canary': 4}, 0.1)
  assert labels.read(folder) == {
    'cluster_models': expected,
    'personalized_models': expected,
  }
  program = launcher.run(
    'binaries.label',
    *(f'--export_dir={folder}', '--labels=', '--models=cluster_models'),
  )
  assert program.returncode == 0, program.stderr
  assert labels.read(folder) == {'personalized_models': expected}


def test_a_label_is_given_once(launcher, folder):
  program = launcher.run(
    *('binaries.label', f'--export_dir={folder}', '--labels=stable=3,stable=4')
  )
  assert program.returncode == 1
  assert program.complaints[-1].endswith(
    "--labels names 'stable' twice; give it once"
  )
  assert not labels.read(folder)


def test_labels_in_a_published_workdir(
  launcher, s3, folder, tmp_path_factory, monkeypatch
):
  address = f's3://{s3_server.BUCKET}/labelled'
  workdir = tmp_path_factory.mktemp('production')
  folder.rename(workdir / 'export')
  published.publish(workdir, address)
  monkeypatch.setenv(cache_folder.VARIABLE, str(workdir / 'cache'))
  program = launcher.run(
    'binaries.label',
    *(f'--export_dir={address}/export', '--labels=stable=3'),
    **os.environ,
  )
  assert program.returncode == 0, program.stderr
  mirror = mirror_lib.Mirror(address)
  assert mirror.fetch()
  found = labels.read(mirror.folder / 'export')
  assert found['cluster_models'] == labels.Labels({'stable': 3})


def test_bad_labels(launcher, folder):
  for given, text in (
    (['stable'], "got 'stable'"),
    (['stable=5'], 'no version 5'),
    (['stable=3', '--models='], "--models is ''; name each model"),
  ):
    program = launcher.run(
      'binaries.label',
      f'--export_dir={folder}',
      f'--labels={given[0]}',
      *given[1:],
    )
    assert program.returncode == 1
    assert text in program.said[-1]
  assert labels.read(folder) == {}
