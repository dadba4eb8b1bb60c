"""Provenance: revision and changes of a checkout, lock, machine."""

import hashlib
import re
import subprocess

import pytest

from tff_algos.experiments import provenance


def _git(root, *arguments):
  identity = ['-c', 'user.name=x', '-c', 'user.email=x@y.z']
  return subprocess.run(
    ['git', *identity, *arguments],
    cwd=root,
    check=True,
    capture_output=True,
    text=True,
  ).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
  _git(tmp_path, 'init', '--quiet')
  (tmp_path / 'tff_algos').mkdir()
  (tmp_path / 'tff_algos' / 'a.py').write_text('1\n')
  _git(tmp_path, 'add', '.')
  _git(tmp_path, 'commit', '--quiet', '--message=first')
  return tmp_path


def test_revision_is_the_commit_and_the_code_is_clean(checkout):
  (checkout / 'notes.txt').write_text('is no code')
  assert provenance._checkout(checkout) == {
    'revision': _git(checkout, 'rev-parse', 'HEAD'),
    'is_clean': True,
  }


@pytest.mark.parametrize(
  'name',
  [
    *('tff_algos/a.py', 'tff_algos/new.py'),
    'docs/reproduction/fed_soft_network.py',
  ],
)
def test_changed_and_new_code_is_not_clean(checkout, name):
  (checkout / name).parent.mkdir(parents=True, exist_ok=True)
  (checkout / name).write_text('2\n')
  assert provenance._checkout(checkout)['is_clean'] is False


def test_the_checkout_is_that_of_the_folder_also_within_another_one(
  checkout, monkeypatch
):
  """Git's own variables, as its hooks set them, name another one."""
  inner = checkout / 'site-packages'
  inner.mkdir()
  nothing = {'revision': None, 'is_clean': None}
  assert provenance._checkout(inner) == nothing
  monkeypatch.setenv('GIT_DIR', str(inner / '.git'))
  assert provenance._checkout(checkout)['is_clean'] is True


def test_without_git_there_is_no_revision(checkout, monkeypatch):
  monkeypatch.setenv('PATH', '')
  assert provenance._checkout(checkout)['revision'] is None


def test_lock_is_that_which_the_environment_was_made_from(tmp_path):
  assert provenance._lock_hash(tmp_path) is None
  (tmp_path / 'made-from').mkdir()
  (tmp_path / 'made-from' / 'requirements.lock').write_text('a==1\n')
  expected = hashlib.sha256(b'a==1\n').hexdigest()
  assert provenance._lock_hash(tmp_path) == expected[:16]


def test_processor_is_named(tmp_path):
  path = tmp_path / 'cpuinfo'
  assert provenance._cpu_name(path) is None
  path.write_text('vendor_id\t: x\nmodel name\t: Fast 3000\nmodel name\t: y\n')
  assert provenance._cpu_name(path) == 'Fast 3000'


def test_an_accelerator_is_named():
  machine = provenance.describe('H100, jax 1')['machine']
  assert machine.pop('accelerator') == 'H100, jax 1'
  assert machine == provenance.describe()['machine']


def test_this_process_is_described_once():
  found = provenance.describe()
  assert found is provenance.describe()
  assert found['machine']['num_cores'] >= 1
  assert 0.1 < found['machine']['memory_gib'] < 1e6
  assert found['revision'] is None or re.fullmatch(
    '[0-9a-f]{40}', found['revision']
  )
