"""Dockerfile and devcontainer: files, commands and versions that exist here."""

import fnmatch
import json
import re
import tomllib

import tff_algos
from tests.testing import programs

_ROOT = programs.ROOT
_DOCKERFILE = (_ROOT / 'Dockerfile').read_text()
_MAKEFILE = (_ROOT / 'Makefile').read_text()


def _instructions(kind: str) -> list[str]:
  joined = _DOCKERFILE.replace('\\\n', ' ')
  return re.findall(rf'^{kind} (.*)$', joined, re.MULTILINE)


def _ignored(name: str) -> bool:
  patterns = (_ROOT / '.dockerignore').read_text().split()
  return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _targets() -> set[str]:
  return {*re.findall(r'^([a-z-]+):', _MAKEFILE, re.MULTILINE)}


def test_copied_files_exist_and_reach_the_build():
  copies = [line.split()[:-1] for line in _instructions('COPY')]
  files = [name for names in copies for name in names if name != '.']
  assert {'Makefile', 'requirements.lock'} <= {*files}
  for name in files:
    assert (_ROOT / name).is_file() and not _ignored(name)
  # The environment of the host must not replace that of the image, and raw
  # data of clients must not be pushed with it.
  assert ['.'] in copies
  for name in ('.venv', 'runs', 'data'):
    assert _ignored(name)


def test_commands_are_targets_of_make():
  called = re.findall(r'(?<!-)\bmake"?[, ]+"?([a-z-]+)', _DOCKERFILE)
  assert {'env', 'demo', 'test'} <= {*called} <= _targets()
  devcontainer = json.loads(
    (_ROOT / '.devcontainer/devcontainer.json').read_text()
  )
  program, target = devcontainer['postCreateCommand'].split()
  assert program == 'make' and target in _targets()
  readme = (_ROOT / 'README.md').read_text()
  for command in ('make demo', 'make test'):
    assert f'```\n{command}\n```' in readme


def test_versions_and_folders_agree():
  (image,) = _instructions('FROM')
  version = re.match(r'python:(3\.\d+)-', image)[1]
  project = tomllib.loads((_ROOT / 'pyproject.toml').read_text())['project']
  assert version in project['requires-python']
  assert f'PYTHON=/usr/local/bin/python{version}' in _DOCKERFILE
  (workdir,) = _instructions('WORKDIR')
  assert f'--volume="$PWD/runs:{workdir}/runs"' in _DOCKERFILE
  assert re.search(r'^WORKDIR \?= runs/demo$', _MAKEFILE, re.MULTILINE)
  for name in ('git', 'make', 'gcc'):
    assert any(f' {name} ' in line for line in _instructions('RUN'))


def test_devcontainer_builds_that_image_with_the_projects_python():
  path = _ROOT / '.devcontainer' / 'devcontainer.json'
  content = json.loads(path.read_text())
  build = content['build']
  assert (path.parent / build['dockerfile']).resolve() == _ROOT / 'Dockerfile'
  assert (path.parent / build['context']).resolve() == _ROOT
  platform = '--platform=linux/amd64'
  assert build['options'] == content['runArgs'] == [platform]
  # Every command that builds or runs the image.
  commands = re.findall(r'^#   (docker .*)$', _DOCKERFILE, re.MULTILINE)
  assert len(commands) == 3 and all(platform in one for one in commands)
  settings = content['customizations']['vscode']['settings']
  assert settings['python.defaultInterpreterPath'].endswith('/.venv/bin/python')


def test_image_for_dataflow_goes_with_the_lock():
  text = (_ROOT / 'docs/examples/dataflow.Dockerfile').read_text()
  lock = (_ROOT / 'requirements.lock').read_text()
  beam, python = (
    re.search(pattern, text)[1]
    for pattern in (r'_sdk:(\S+)', r'apache/beam_python([\d.]+)_sdk')
  )
  assert f'\napache-beam=={beam} ' in lock
  assert f'FROM python:{python}-' in _DOCKERFILE
  assert f'\nFROM tff-algos:{tff_algos.__version__}\n' in text
  (workdir,) = _instructions('WORKDIR')
  assert f'PYTHONPATH={workdir}\n' in text.replace(' \\\n', '\n')
