import os
import shutil
import threading
from concurrent import futures

import pytest

from tests.testing import power_loss
from tff_algos.core import cache_folder, durable, errors
from tff_algos.stores import objects as objects_lib
from tff_algos.stores import plain_copy

_ADDRESS = 'memory://bucket/raw'


@pytest.fixture
def objects(tmp_path, monkeypatch):
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
  objects = objects_lib.Objects(_ADDRESS)
  for name in objects.list():
    objects.delete(name)
  for name in ('a.csv', 'b/c.csv', 'gone.csv'):
    objects.write(name, name.encode())
  return objects


@pytest.fixture
def downloads(monkeypatch):
  """Names of the objects that are read."""
  found = []

  def record(self, name, path, download=objects_lib.Objects.download):
    found.append(name)
    download(self, name, path)

  monkeypatch.setattr(objects_lib.Objects, 'download', record)
  return found


def _content(folder):
  return {
    path.relative_to(folder).as_posix(): path.read_text()
    for path in folder.rglob('*')
    if path.is_file()
  }


def test_what_changed_alone_is_read_again(objects, downloads):
  with plain_copy.held(_ADDRESS) as (_, folder, *_):
    assert folder.name == 'raw'
    assert _content(folder) == {
      name: name for name in ('a.csv', 'b/c.csv', 'gone.csv')
    }
  objects.write('a.csv', b'other')
  objects.delete('gone.csv')
  downloads.clear()
  with plain_copy.held(f'{_ADDRESS}/') as (_, folder, *_):
    assert _content(folder) == {'a.csv': 'other', 'b/c.csv': 'b/c.csv'}
  assert downloads == ['a.csv']
  names = ['.lock', 'raw', 'raw.listing.json']
  assert sorted(os.listdir(folder.parent)) == names


def test_a_copy_that_was_removed_is_made_anew(objects):
  with plain_copy.held(_ADDRESS) as (_, folder, *_):
    before = _content(folder)
  shutil.rmtree(folder)
  with plain_copy.held(_ADDRESS) as (_, folder, *_):
    assert _content(folder) == before
  folder.with_name(f'{folder.name}.listing.json').write_text('')
  with plain_copy.held(_ADDRESS) as (_, folder, *_):
    assert _content(folder) == before


def test_files_that_another_program_removed_or_cut_are_copied_again(
  objects, downloads
):
  with plain_copy.held(_ADDRESS) as (_, folder, *_):
    before = _content(folder)
  (folder / 'a.csv').unlink()
  (folder / 'b' / 'c.csv').write_text('b')
  downloads.clear()
  with plain_copy.held(_ADDRESS):
    assert _content(folder) == before
  assert sorted(downloads) == ['a.csv', 'b/c.csv']
  (folder / 'gone.csv').write_text('cut')
  objects.delete('gone.csv')
  with plain_copy.held(_ADDRESS):
    assert sorted(_content(folder)) == ['a.csv', 'b/c.csv']


def test_an_object_may_have_the_name_of_a_former_folder(objects):
  objects.write('b/d/e.csv', b'')
  with plain_copy.held(_ADDRESS):
    pass
  for name in ('b/c.csv', 'b/d/e.csv'):
    objects.delete(name)
  objects.write('b', b'a file')
  with plain_copy.held(_ADDRESS) as (_, folder, *_):
    assert _content(folder)['b'] == 'a file'


def test_a_change_meanwhile_is_copied_too(objects, monkeypatch):
  def change(self, name, path, download=objects_lib.Objects.download):
    download(self, name, path)
    if name == 'b/c.csv' and self.read('a.csv') == b'a.csv':
      self.write('a.csv', b'changed')
      self.delete('gone.csv')

  monkeypatch.setattr(objects_lib.Objects, 'download', change)
  with plain_copy.held(_ADDRESS) as (_, folder, *_):
    assert _content(folder) == {'a.csv': 'changed', 'b/c.csv': 'b/c.csv'}


def test_an_interrupted_copy_is_made_anew(objects, downloads, monkeypatch):
  with plain_copy.held(_ADDRESS):
    objects.write('a.csv', b'new')
    with pytest.raises(errors.WorkdirBusyError, match='reads the copy of mem'):
      with plain_copy.held(_ADDRESS):
        pass
  with monkeypatch.context() as patch:

    def fail(*_):
      raise KeyboardInterrupt

    patch.setattr(os, 'replace', fail)
    with pytest.raises(KeyboardInterrupt), plain_copy.held(_ADDRESS):
      pass
  downloads.clear()
  with plain_copy.held(_ADDRESS) as (_, folder, *_):
    assert _content(folder)['a.csv'] == 'new'
  assert sorted(downloads) == ['a.csv', 'b/c.csv', 'gone.csv']


def test_after_a_power_loss_a_listing_has_what_is_there(objects):
  with plain_copy.held(_ADDRESS) as (_, folder, *_):
    listing = folder.with_name('raw.listing.json')
    known = {listing.read_text(): _content(folder)}
  objects.write('a.csv', b'other')
  objects.delete('gone.csv')

  def copy():
    with plain_copy.held(_ADDRESS):
      known[listing.read_text()] = _content(folder)

  def recover(place, is_finished):
    left = place / listing.name
    assert left.exists() or not is_finished
    if left.exists():
      assert _content(place / 'raw') == known[left.read_text()]

  power_loss.check(folder.parent, copy, recover)
  assert len(known) == 2


def test_an_empty_address_is_an_error(objects):
  with pytest.raises(errors.DataError, match='nothing is at memory://.*; mend'):
    with plain_copy.held('memory://bucket/nothing'):
      pass


@pytest.mark.parametrize('name', ['fetching', 'listing.json'])
def test_a_folder_of_any_name_is_copied(objects, name):
  address = f'memory://bucket/{name}'
  objects_lib.Objects(address).write('a.csv', b'1')
  for _ in range(2):
    with plain_copy.held(address) as (_, folder, *_):
      assert folder.name == name and _content(folder) == {'a.csv': '1'}


def test_a_worker_elsewhere_makes_the_same_copy(objects, downloads):
  with plain_copy.held(_ADDRESS) as copy:
    content = _content(copy.folder)
    downloads.clear()
    with plain_copy.held_elsewhere(copy):  # Here it is there already.
      assert not downloads
  shutil.rmtree(copy.folder.parent)
  with plain_copy.held_elsewhere(copy), plain_copy.held_elsewhere(copy):
    assert _content(copy.folder) == content
  assert sorted(downloads) == sorted(content)


def test_a_worker_gives_up_on_a_held_copy_that_lacks_a_file(
  objects, monkeypatch
):
  monkeypatch.setattr(plain_copy, '_PATIENCE_SECONDS', 0.1)
  with plain_copy.held(_ADDRESS) as copy:
    (copy.folder / 'a.csv').unlink()
    with pytest.raises(errors.WorkdirBusyError, match='reads the copy of mem'):
      with plain_copy.held_elsewhere(copy):
        pass


@pytest.mark.parametrize('change', ['changes', 'goes'])
def test_a_worker_copies_no_other_state(objects, downloads, change):
  """Nor does it wait for the program, which holds the copy."""
  with plain_copy.held(_ADDRESS) as copy:
    content = _content(copy.folder)
    downloads.clear()
    if change == 'changes':
      objects.write('a.csv', b'other')
    else:
      objects.delete_all()
    with pytest.raises(errors.InfrastructureError, match='changed meanwhile'):
      with plain_copy.held_elsewhere(copy):
        pass
    assert _content(copy.folder) == content and not downloads


def test_workers_that_start_together_do_not_wait_for_each_others_work(
  objects, downloads
):
  with plain_copy.held(_ADDRESS) as copy:
    pass
  shutil.rmtree(copy.folder.parent)
  downloads.clear()
  together = threading.Barrier(3, timeout=30)

  def work():
    with plain_copy.held_elsewhere(copy):
      together.wait()  # All three hold the copy at one time.

  with futures.ThreadPoolExecutor(3) as pool:
    for worker in [pool.submit(work) for _ in range(3)]:
      worker.result()
  assert sorted(downloads) == ['a.csv', 'b/c.csv', 'gone.csv']


def test_a_worker_that_cannot_write_the_copy(objects, monkeypatch):
  with plain_copy.held(_ADDRESS) as copy:
    pass

  def refuse(path):
    raise PermissionError(13, 'Permission denied', str(path))

  monkeypatch.setattr(durable, 'make_folder', refuse)
  with pytest.raises(
    errors.InfrastructureError, match=r'cannot copy .* choose .*\$TFF_ALGOS'
  ):
    with plain_copy.held_elsewhere(copy):
      pass
