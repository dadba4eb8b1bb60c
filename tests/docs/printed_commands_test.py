"""The commands in the code blocks of the pages work, exactly as printed.

But for those that `_NOT_RUN` lists with the reason. A page is one shell script,
in a folder that looks like the checkout and has data and runs of its own.
README's commands come first, and the other pages go on with its runs.
Commands in a sentence are read by `commands_test.py` alone.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from tests.testing import programs

_README = 'README.md'
_PAGES = [
  _README,
  *('CONTRIBUTING.md', 'benchmarks/README.md'),
  *sorted(
    path.relative_to(programs.ROOT).as_posix()
    for path in (programs.ROOT / 'docs').glob('**/*.md')
  ),
]
_REPRODUCTION = (
  'an hour or more, or downloaded images; commands_test.py reads it'
)
_SWEEP = 'trains many models; commands_test.py reads it'
# (page, part of a command, why no test here runs it); '' is any command.
_NOT_RUN = (
  (_README, 'make test', 'is this suite'),
  (_README, 'pip install', 'needs the network; the wheel: tests/package'),
  (_README, 'overrides.txt', 'is for pip'),
  (_README, 'jupyter lab', 'opens a browser'),
  ('CONTRIBUTING.md', 'make env', 'needs the network'),
  ('CONTRIBUTING.md', 'make test', 'is this suite'),
  ('CONTRIBUTING.md', 'bazel ', 'needs Bazel, and rebuilds everything'),
  ('benchmarks/README.md', 'make growth', 'minutes: growth_test.py runs it'),
  ('benchmarks/README.md', 'make bench-', 'needs the network, or half an hour'),
  ('benchmarks/README.md', 'make bench  ', 'half an hour'),
  ('benchmarks/README.md', 'OUT=file.json', 'several minutes'),
  ('benchmarks/README.md', 'ROUNDS=', 'several minutes'),
  ('benchmarks/README.md', 'CONTENDERS=', 'several minutes'),
  *(
    ('benchmarks/README.md', part, 'minutes: accelerator_test.py')
    for part in ('accelerator.pack', 'mlp1000.pyz', 'accelerator.report')
  ),
  ('docs/accelerators.md', 'nvidia-cuda-mps', 'needs a GPU'),
  ('docs/accelerators.md', 'XLA_PYTHON', 'needs a GPU'),
  ('docs/accelerators.md', 'binaries.sweep', _SWEEP),
  ('docs/airflow.md', '', 'needs Airflow and the network'),
  ('docs/data_engineering.md', 'make bench-data', 'several minutes'),
  (
    'docs/data_engineering.md',
    'temp_location',
    'needs a store: apart_engines_test.py',
  ),
  ('docs/own_data.md', 'curl -L', 'needs the network'),
  *(
    ('docs/own_data.md', part, 'needs the download: own_data_test.py')
    for part in ('beijing_air.py', 'binaries.inspect', 'data/air.py')
  ),
  ('docs/threat_model.md', '', 'needs the network'),
  *(
    ('docs/data_engineering.md', part, 'data_engineering_test.py runs it')
    for part in (
      'multi_processing',
      'dask scheduler',
      'dask worker',
      'DaskRunner',
    )
  ),
  ('docs/privacy.md', 'binaries.sweep', _SWEEP),
  ('docs/drift.md', 'binaries.drift', 'needs two runs: drift_test.py'),
  ('docs/production.md', '15 2 * * *', 'is a line of cron'),
  ('docs/serving.md', 'binaries.label', 'of a running server: label_test.py'),
  (
    'docs/fortnight.md',
    'fortnight_nights',
    'half an hour; fortnight_nights_test.py runs most of it',
  ),
  *(
    (f'docs/reproduction/{page}.md', 'binaries.sweep', _REPRODUCTION)
    for page in ('cmfl', 'fed_soft', 'filter_decomposition', 'pfedkm', 'ppfl')
  ),
  ('docs/reproduction/cmfl.md', 'folder=DIR', _REPRODUCTION),
  (
    'docs/reproduction/fed_soft.md',
    'pseudo_cases',
    'needs EMNIST: pseudo_cases_test.py',
  ),
  ('docs/reproduction/README.md', 'make reproduction', _REPRODUCTION),
  ('docs/initialization.md', 'binaries.sweep', _SWEEP),
  *(
    ('docs/scale.md', part, 'needs a store: mirrored_flags_test.py')
    for part in ('s3://', 'by_range')
  ),
  ('docs/robustness.md', 'binaries.sweep', _SWEEP),
  *(
    ('docs/serving.md', part, 'is a second server: predict_test.py')
    for part in ('server.key', '--cacert', 'tls_ca')
  ),
  ('docs/sweeps.md', 'binaries.sweep', _SWEEP),
  (
    'docs/tracking.md',
    'binaries.run',
    'needs a server: mlflow_tracker_test.py',
  ),
)
_COMMAND = re.compile(
  r'(?:[A-Z]+=\$\(|for |15 2 \* \* \* )?'
  r'(?:\.venv/bin/\w+|python|pip|uv|printf|make|bazel|curl) '
)
_FENCED = re.compile(r'^```(\w*)\n(.*?)^```', re.M | re.S)
_INDENTED = re.compile(rf'^    ({_COMMAND.pattern}.*)$', re.M)
_PATIENCE_SECONDS = 1200
_PRELUDE = """
set -e -o pipefail
# An answer that is an error is one of the command.
curl() { command curl --silent --show-error --fail "$@"; }
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
end() {
  test -z "$server" || kill "$server"
  while kill -0 "$server"; do sleep 0.1; done
}
trap 'end 2> /dev/null || true' EXIT
"""
_UNTIL_IT_SERVES = """
server=$!
disown  # So `wait` does not wait for it.
until command curl --silent --output /dev/null http://127.0.0.1:8501/v1/models
do kill -0 $server; sleep 0.2; done
"""


# A command ends with the first line that makes it a whole one; it is read as the
# body of a function, which nobody calls.
_SPLIT = r"""
while IFS= read -r line; do
  open+=$line
  if [[ $line != *\\ ]] && eval "f() { :
$open
}" 2> /dev/null; then
    printf '%s\0' "$open"
    open=
  else
    open+=$'\n'
  fi
done
printf '%s' "$open"
"""


def _commands(page: str) -> list[str]:
  """Returns the commands of a page, each with the lines that belong to it."""
  text = (programs.ROOT / page).read_text()
  blocks = [
    block
    for language, block in _FENCED.findall(text)
    if not language and _COMMAND.search(block)
  ]
  if not blocks:
    return _INDENTED.findall(_FENCED.sub('', text))
  found = subprocess.run(
    ['bash', '-c', _SPLIT],
    input=''.join(blocks),
    check=True,
    stdout=subprocess.PIPE,
    text=True,
  )
  *commands, left = found.stdout.split('\0')
  assert not left, f'{page}: {left}'
  return commands + _INDENTED.findall(_FENCED.sub('', text))


_COMMANDS = {page: commands for page in _PAGES if (commands := _commands(page))}


def _reasons(page: str, command: str) -> list[str]:
  return [
    reason for one, part, reason in _NOT_RUN if one == page and part in command
  ]


_RUN = {
  page: found
  for page, commands in _COMMANDS.items()
  if (found := [one for one in commands if not _reasons(page, one)])
}


def test_every_exception_is_a_command():
  for page, part, _ in _NOT_RUN:
    assert any(part in one for one in _COMMANDS[page]), (page, part)


def test_every_program_in_a_block_is_a_command():
  for page in _PAGES:
    text = (programs.ROOT / page).read_text()
    for program in re.findall(r'^[^`\n]*-m binaries\.\w+ --.*', text, re.M):
      assert any(program.strip() in c for c in _COMMANDS[page]), (page, program)


@pytest.fixture(name='checkout', scope='module')
def _checkout(tmp_path_factory):
  """A folder with links to the checkout, after README's commands."""
  folder = tmp_path_factory.mktemp('checkout')
  for path in programs.ROOT.iterdir():
    if path.name not in ('data', 'runs', '.git'):
      (folder / path.name).symlink_to(path)
  _run(folder, _README)
  return folder


def _run(folder: pathlib.Path, page: str) -> None:
  script = [_PRELUDE]
  for command in _RUN[page]:
    # One that prints something ends by itself.
    if 'binaries.serve' in command and '--print' not in command:
      script += [command.removesuffix(' &') + ' &', _UNTIL_IT_SERVES]
    else:
      script.append(command)
  path = (
    f'{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'
  )
  environment = {**os.environ, 'PATH': path}
  environment.pop('PYTHONPATH', None)
  log = folder / f'{page.replace("/", "_")}.log'
  with open(log, 'w') as out:
    process = subprocess.Popen(
      ['bash', '-c', '\n'.join(script)],
      cwd=folder,
      env=environment,
      stdin=subprocess.DEVNULL,
      stdout=out,
      stderr=subprocess.STDOUT,
      start_new_session=True,
    )
    try:
      code = process.wait(_PATIENCE_SECONDS)
    finally:
      with contextlib.suppress(ProcessLookupError):  # All have ended.
        os.killpg(process.pid, signal.SIGTERM)
  said = log.read_text()
  assert code == 0, said[-3000:]
  # A job in the background fails without a code.
  assert not re.search(r'^(E\d{4} |Traceback)', said, re.M), said


@pytest.mark.verify
@pytest.mark.xdist_group('printed commands')
@pytest.mark.parametrize('page', _RUN)
def test_commands_work_as_printed(page, checkout):
  if page != _README:  # Its commands made the checkout.
    _run(checkout, page)
