"""Damage of a run's files: what programs make of it, and of their own advice.

A laboratory has a small run, trained, evaluated and reported, which continues
another one. A case damages one of its files or folders and calls a reader; if
that refuses, the advice of the error is followed, and the run trained to its
end and evaluated.

    python -m tests.testing.damaged_runs

prints a table of all cases.
"""

import collections
import contextlib
import os
import pathlib
import re
import shutil
import tempfile
from typing import NamedTuple
from unittest import mock

import numpy as np
import tensorflow as tf

from configs.fed_soft import synthetic
from tests.testing import csv_files, unrendered
from tff_algos.core import errors
from tff_algos.experiments import (
  datasets,
  evaluating,
  experiment,
  exporting,
  training,
)
from tff_algos.experiments.production import drifting, gate_record, lineage
from tff_algos.reports.run import page

TRUNCATED, EMPTIED, FLIPPED, SWAPPED, DELETED, REPLACED, UNREADABLE = (
  DAMAGES
) = (
  'truncated',
  'emptied',
  'flipped',
  'swapped',
  'deleted',
  'replaced',
  'unreadable',
)
_CONTENTS = (TRUNCATED, EMPTIED, FLIPPED, SWAPPED)
READERS = ('resume', 'evaluate', 'export', 'report')
# Of folders; the bytes of a folder are its files'.
_OF_FOLDERS = (SWAPPED, DELETED, REPLACED, UNREADABLE)
# Without these a run is as if they had not been made yet; errors advise it.
_OPTIONAL = re.compile(
  r'checkpoints(/round_\d+)?|(drift|gate|lineage)\.json|evaluation/records.json'
)
_IGNORED = ('dataset', 'tensorboard', 'report', 'drift_reference')
_NUM_STEPS = 5

UNDISTURBED, WITHOUT, NAMED, UNNAMED, SILENT, TRACE = (
  'undisturbed',
  'goes on without it',
  'refused, named',
  'refused, not named',
  'accepted in silence',
  'stack trace',
)


class Outcome(NamedTuple):
  """What became of a case.

  Attributes:
    kind: One of the constants above.
    text: Text of the error.
    advice: Alternative of the advice -> what is wrong after following it; ''
      if nothing is.
  """

  kind: str
  text: str = ''
  advice: tuple[tuple[str, str], ...] = ()


def config(num_rounds=2, seed=0, num_clients=3):
  """Returns the config of a run of a tenth of a second a round."""
  values = synthetic.get_config('smoke')
  values.seed = seed
  values.runtime.name = 'debug'
  values.dataset.update(
    partition={'num_clients': num_clients},
    sizes={'law': 'uniform', 'minimum': 8, 'maximum': 12},
  )
  values.dataset.source.options.update(
    {'num_examples_per_source': 100, 'num_held_out_per_source': 20}
  )
  values.algorithm.cohort_size_per_cluster = 2
  values.algorithm.local_training.num_local_epochs = 1
  values.training.update(num_rounds=num_rounds, checkpoint_interval=1)
  return experiment.parse(values)


class _Written(Exception):
  """Ends an export, whose bundles take seconds, when the states are read."""


def _write_states(opened, round_num, server_state, unused_output):
  clients = np.arange(opened.source.population.num_clients)
  states = tf.nest.flatten((server_state, opened.store.load(clients)))
  path = opened.workdir / 'export' / f'{round_num}'
  path.write_text(repr([np.asarray(leaf).tolist() for leaf in states]))
  raise _Written


class Laboratory:
  """Runs to damage, in a folder: `start`, `other`, their parents, `whole`."""

  def __init__(self, folder: pathlib.Path, pictures=unrendered.blank_pictures):
    self.folder = folder
    self._pictures = pictures
    for name, seed in (('start', 0), ('other', 1)):
      self._make(folder / name, folder / f'parent_of_{name}', seed)
    self.whole = self._copy('whole')
    self._end(self.whole)
    self._expected = {}
    self._followed = {}

  def paths(self) -> list[str]:
    """Returns the files and folders of the run that may be damaged."""
    found = (path for path in self.whole.parent.joinpath('start').rglob('*'))
    names = (str(path.relative_to(self.folder / 'start')) for path in found)
    return sorted(
      name for name in names if not name.startswith((*_IGNORED, '.'))
    )

  def damages(self, name: str) -> tuple[str, ...]:
    """Returns the kinds of damage that a path may have."""
    is_folder = (self.folder / 'start' / name).is_dir()
    return _OF_FOLDERS if is_folder else DAMAGES

  def run(self, name: str, damage: str, reader: str) -> Outcome:
    """Runs a case: damages a fresh copy of the run and calls a reader."""
    first = self._attempt(name, damage, reader, None)
    if isinstance(first, Outcome):
      return first
    kind, text, choices = first
    if not choices:
      return Outcome(kind, text, (('', 'the error gives no advice'),))
    return Outcome(
      kind,
      text,
      tuple(
        (choice, self._result(name, damage, reader, number, choice))
        for number, choice in enumerate(choices)
      ),
    )

  def _result(self, name, damage, reader, number, choice):
    """Follows an alternative, unless that was done after the same damage.

    Readers give one advice, and do the same with all damaged contents.
    """
    kind = 'content' if damage in (*_CONTENTS,) else damage
    key = (name, kind, choice)
    if key not in self._followed:
      self._followed[key] = self._attempt(name, damage, reader, number)
    return self._followed[key]

  def _attempt(self, name, damage, reader, number):
    """Calls a reader; follows the alternative of a number, if one is given."""
    case = self._copy('case')
    path = case / name
    self._damage(path, damage)
    try:
      self._read(reader, case)
    except errors.UserError as error:
      text = str(error)
      choices = _choices(text)
      if number is not None:
        return self._follow(case, reader, error, number)
      is_named = str(path) in text
      return (NAMED if is_named else UNNAMED, text, choices)
    except Exception as error:
      return Outcome(TRACE, f'{type(error).__name__}: {error}')
    is_same = self._product(reader, case) == self._expect(reader)
    if reader == 'report' and name.startswith('checkpoints'):
      is_same = True  # Reports list it, if it is there.
    is_gone = damage in (DELETED, UNREADABLE)
    if not is_same and is_gone and _OPTIONAL.fullmatch(name):
      return Outcome(WITHOUT)
    return Outcome(UNDISTURBED if is_same else SILENT)

  def _follow(self, case, reader, error, number) -> str:
    """Does what an error says until the reader succeeds; returns a complaint."""
    goes_on = False
    try:
      for _ in range(_NUM_STEPS):
        choices = _choices(str(error))
        if not choices:
          return f'then no advice: {error}'
        choice = choices[min(number, len(choices) - 1)]
        goes_on |= 'to go on without' in choice
        try:
          self._obey(case, choice, str(error))
          self._read(reader, case)
          self._end(case)
          break
        except errors.UserError as again:
          error = again
      else:
        return f'still refused: {error}'
    except Exception as found:
      return f'then {type(found).__name__}: {found}'
    names = ('states',) if goes_on else None
    ours, theirs = (_state(each, names) for each in (case, self.whole))
    return '' if ours == theirs else 'ends in another state'

  def _obey(self, case, choice, text):
    removed = [pathlib.Path(one) for one in re.findall(r'(/[^\s,;:]+)', choice)]
    if re.search(r'\b[Rr]emove it\b', choice):
      removed.append(pathlib.Path(re.findall(r'(/[^\s,;:]+)', text)[0]))
    if re.search(r'\b[Rr]emove\b', choice):
      for path in removed:
        path = pathlib.Path(str(path).removesuffix('.'))
        assert case in path.parents, path
        if path.is_dir() and not path.is_symlink():
          shutil.rmtree(path)
        else:
          path.unlink(missing_ok=True)
    for program in re.findall(r'binaries\.(\w+)', choice):
      reader = {'train': 'resume'}.get(program, program)
      if '--continue_from' in choice:
        parent = self.folder / 'parent_of_start'
        training.train(config(3), case, parent=parent, shows_progress=False)
      elif reader == 'drift':
        parent = self.folder / 'parent_of_start'
        drifting.measure(config(2, 0), case, parent)
      elif reader in READERS:
        self._read(reader, case)

  def _read(self, reader, folder):
    with contextlib.ExitStack() as stack:
      stack.enter_context(self._pictures())
      if reader == 'resume':
        training.train(config(3), folder, shows_progress=False)
      elif reader == 'evaluate':
        evaluating.evaluate(config(3), folder)
      elif reader == 'export':
        stack.enter_context(
          mock.patch.object(exporting, 'write_bundles', _write_states)
        )
        stack.enter_context(contextlib.suppress(_Written))
        exporting.export(config(3), folder)
      else:
        page.write_report(folder)

  def _end(self, folder):
    for reader in ('resume', 'evaluate', 'report'):
      self._read(reader, folder)

  def _make(self, folder, parent, seed):
    before = config(1, seed, num_clients=4)
    datasets.build(before.dataset, parent)
    training.train(before, parent, shows_progress=False)
    now = config(2, seed)
    datasets.build(now.dataset, folder)
    drifting.measure(now, folder, parent)
    training.train(now, folder, parent=parent, shows_progress=False)
    evaluating.evaluate(now, folder)
    record = gate_record.GateRecord(True, (), 3, '', '', {}, {})
    gate_record.write(folder, record)
    lineage.write(now, folder, folder / 'export')
    self._read('report', folder)

  def _copy(self, name) -> pathlib.Path:
    copy = self.folder / name
    if os.path.lexists(copy):
      shutil.rmtree(copy)
    shutil.copytree(self.folder / 'start', copy, symlinks=True)
    return copy

  def _damage(self, path, damage):
    other = self.folder / 'other' / path.relative_to(self.folder / 'case')
    if damage == TRUNCATED:
      os.truncate(path, path.stat().st_size // 2)
    elif damage == EMPTIED:
      os.truncate(path, 0)
    elif damage == FLIPPED:
      path.write_bytes(_flipped(path.read_bytes()))
    elif damage == SWAPPED and path.is_dir():
      shutil.rmtree(path)
      shutil.copytree(other, path)
    elif damage == SWAPPED:
      shutil.copyfile(other, path)
    else:
      is_folder = path.is_dir()
      shutil.rmtree(path) if is_folder else path.unlink()
      if damage == UNREADABLE:
        path.symlink_to(path)  # Also root cannot read it.
      elif damage == REPLACED and is_folder:
        path.write_text('a file')
      elif damage == REPLACED:
        path.mkdir()

  def _expect(self, reader):
    if reader not in self._expected:
      case = self._copy('expected')
      self._read(reader, case)
      self._expected[reader] = self._product(reader, case)
    return self._expected[reader]

  def _product(self, reader, folder):
    """Returns what a reader has made."""
    if reader == 'resume':
      return _state(folder)
    names = {'evaluate': 'evaluation', 'export': 'export', 'report': 'report'}
    return {
      path.name: path.read_bytes()
      for path in sorted((folder / names[reader]).rglob('*'))
      if path.is_file() and path.name != 'records.json'
    }


def _state(folder, names=None):
  """Returns what must be equal after the same training, by kind."""
  kinds = {'metrics': csv_files.read_rounds(folder / 'metrics.csv')}
  for kind, pattern in (
    ('memberships', 'memberships/*'),
    ('states', 'checkpoints/round_*/*.npz'),
    ('states of clients', 'checkpoints/client_states/*'),
  ):
    kinds[kind] = {
      str(path.relative_to(folder)): path.read_bytes()
      for path in sorted(folder.glob(pattern))
      if path.is_file()
    }
  return {kind: kinds[kind] for kind in names or kinds}


def _flipped(content: bytes) -> bytes:
  """Returns the content with another digit, or byte, near its middle."""
  digits = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
  middle = len(content) // 2
  is_text = all(32 <= byte < 127 or byte in b'\r\n' for byte in content)
  if is_text and digits:
    middle = min(digits, key=lambda i: abs(i - middle))
  return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def _choices(text: str) -> list[str]:
  """Returns the alternatives of an error's advice but for copies put back."""
  sentences = re.split(r'(?<=[.)])\s+(?=[A-Z])', text)
  advice = [one for one in sentences if re.search('[Rr]emove|binaries', one)]
  clauses = [c for one in advice for c in re.split(r',? or (?=[a-z])', one)]
  return [
    one
    for one in clauses
    if re.search(r'\b[Rr]emove\b|\bbinaries\.\w+', one)
    and not one.startswith('Put a copy')
  ]


def table(laboratory: Laboratory) -> list[str]:
  """Prints the number of outcomes by path; returns the failures."""
  failures = []
  counts = collections.defaultdict(collections.Counter)
  for name in laboratory.paths():
    for damage in laboratory.damages(name):
      for reader in READERS:
        found = laboratory.run(name, damage, reader)
        counts[reader][found.kind] += 1
        followed = [complaint for _, complaint in found.advice]
        if found.kind in (NAMED, UNNAMED):
          counts[reader]['advice that fails'] += any(followed)
        if found.kind not in (UNDISTURBED, WITHOUT, NAMED) or any(followed):
          failures.append(f'{name} {damage}, {reader}: {found}')
          print(failures[-1])
  for reader, count in counts.items():
    print(reader, dict(count))
  return failures


if __name__ == '__main__':
  with tempfile.TemporaryDirectory() as temporary:
    table(Laboratory(pathlib.Path(temporary), unrendered.pictures))
