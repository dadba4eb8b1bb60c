"""Tests of the checks of the software."""

import pytest

from tff_algos.diagnostics import programs, software


def test_python():
  assert software.check_python().status == 'ok'
  found = software.check_python((3, 12, 1), '/usr')
  assert (found.status, found.found) == ('fail', '3.12.1 in /usr')
  assert 'make env' in found.mend


@pytest.mark.parametrize(
  ('version', 'status'),
  [
    ('glibc 2.31', 'ok'),
    ('glibc 2.36', 'ok'),
    ('glibc 2.4', 'fail'),
    ('glibc 2.28', 'fail'),
    (' ', 'fail'),
  ],
)
def test_glibc(version, status):
  assert software.check_glibc(version).status == status


def test_another_c_library_has_no_version():
  assert software.check_glibc(' ').found == 'none (musl?)'


_LOCK = (
  'Absl_Py==1.4.0 \\\n    --hash=sha256:0 \\\nnumpy==1.25.2 \\\n    # via x\n'
)


def test_packages_as_locked():
  installed = {'absl-py': '1.4.0', 'numpy': '1.25.2', 'pip': '1'}
  found = software.check_packages(_LOCK, installed)
  assert (found.status, found.found) == ('ok', '2 as locked')


def test_packages_missing_and_differing():
  found = software.check_packages(_LOCK, {'numpy': '2.0.0'})
  assert found.status == 'fail'
  assert found.found == (
    'Absl_Py missing, locked 1.4.0\nnumpy 2.0.0, locked 1.25.2'
  )


def test_many_differences_are_cut_short():
  lock = ''.join(f'p{i}==1\n' for i in range(9))
  assert 'and 4 more' in software.check_packages(lock, {}).found


def test_packages_without_a_lock():
  assert software.check_packages(None, {}).status == 'warn'


def test_installed_packages_have_normal_names():
  assert software.installed_packages()['tensorflow-federated'] == '0.87.0'


def test_tensorflow_that_imports():
  answer = programs.Outcome('ok', 'noise\n{"version": "2", "gpus": ["g"]}', '')
  assert software.check_tensorflow(answer).found == '2'
  assert software.tensorflow_gpus(answer) == ['g']


def test_tensorflow_that_does_not_import():
  answer = programs.Outcome('killed by signal 4', '', 'no AVX')
  found = software.check_tensorflow(answer)
  assert found.status == 'fail'
  assert found.found == 'import: killed by signal 4\nno AVX'
  assert software.tensorflow_gpus(answer) is None


def test_tff_that_hangs_is_told_with_the_step():
  answer = programs.Outcome('no end within 9 s', 'one\nimporting TFF', 'words')
  found = software.check_tff(answer)
  assert found.status == 'fail'
  assert found.found == 'while importing TFF: no end within 9 s\nwords'


@pytest.mark.verify
def test_tensorflow_and_tff_really_run():
  assert software.check_tensorflow(software.ask_tensorflow(100)).status == 'ok'
  assert software.check_tff(software.ask_tff(100)).status == 'ok'
