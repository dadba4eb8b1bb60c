import pytest

from tff_algos.core import errors
from tff_algos.stores import objects as objects_lib
from tff_algos.stores import pointer


@pytest.fixture
def objects(address):
  return objects_lib.Objects(address)


class _Clock:
  now = 1000.0
  while_asleep = staticmethod(lambda: None)

  def time(self):
    return self.now

  def sleep(self, seconds):
    self.now += seconds
    self.while_asleep()


@pytest.fixture(name='clock')
def _clock(monkeypatch):
  monkeypatch.setattr(pointer, 'time', clock := _Clock())
  return clock


def test_one_holds_the_lease_and_publishes(objects, clock):
  lease = pointer.Lease(objects, 'one')
  assert lease.snapshot is None
  clock.now += 50
  with pytest.raises(errors.WorkdirBusyError, match='by one; .* in 10 seconds'):
    pointer.Lease(objects, 'two')
  lease.publish('first')
  assert pointer.read(objects)[0] == pointer.Head(2, 'first', 'one', 1110.0)
  lease.release()
  other = pointer.Lease(objects, 'two')
  assert other.snapshot == 'first'
  assert pointer.read(objects)[0][2:] == ('two', 1110.0)


def test_a_lease_that_ended_is_taken_over_and_its_holder_refused(
  objects, clock
):
  lease = pointer.Lease(objects, 'one')
  lease.publish('first')
  clock.now += 61
  other = pointer.Lease(objects, 'two')
  for publish in (lambda: lease.publish('late'), lease.renew):
    with pytest.raises(errors.WorkdirBusyError, match='was taken over by two'):
      publish()
  lease.release()
  other.publish('second')
  assert pointer.read(objects)[0][1:3] == ('second', 'two')


def test_a_lease_that_is_renewed_is_not_taken_by_another_clock(objects, clock):
  lease = pointer.Lease(objects, 'one')
  clock.now += 90  # Of the other machine.
  clock.while_asleep = lease.renew
  with pytest.raises(errors.WorkdirBusyError, match='by one; .* in 60 seconds'):
    pointer.Lease(objects, 'two')
  lease.publish('first')
  clock.now += 90
  clock.while_asleep = lease.release
  assert pointer.Lease(objects, 'two').snapshot == 'first'


def test_a_holder_that_was_killed_goes_on_at_once(objects):
  pointer.Lease(objects, 'one').publish('first')
  assert pointer.Lease(objects, 'one').snapshot == 'first'


def test_two_that_take_a_lease_at_once(objects, monkeypatch):
  pointer.Lease(objects, 'one').release()
  read = pointer.read

  def read_before_another(objects):
    found = read(objects)
    monkeypatch.setattr(pointer, 'read', read)
    pointer.Lease(objects, 'two')
    return found

  monkeypatch.setattr(pointer, 'read', read_before_another)
  with pytest.raises(errors.WorkdirBusyError, match='taken over by two'):
    pointer.Lease(objects, 'three')
  assert read(objects)[0].holder == 'two'


def test_a_holder_takes_over_its_own_write_whose_response_was_lost(
  objects, monkeypatch
):
  lease = pointer.Lease(objects, 'one')
  write_if = objects_lib.Objects.write_if

  def lose(*args):
    write_if(*args)
    raise errors.InfrastructureError('the store is away')

  for snapshot in ('first', 'second'):
    with monkeypatch.context() as patched:
      patched.setattr(objects_lib.Objects, 'write_if', lose)
      with pytest.raises(errors.InfrastructureError, match='is away'):
        lease.publish(snapshot)
    lease.renew()
    assert lease.snapshot == snapshot
  lease.publish('third')
  assert pointer.read(objects)[0][1:3] == ('third', 'one')
  # A copy of the mirror has its name, but did not write the same.
  pointer.Lease(objects, 'one').publish('fourth')
  with pytest.raises(errors.WorkdirBusyError, match='was taken over by one'):
    lease.renew()


def test_a_lease_is_renewed_until_it_is_lost(monkeypatch):
  monkeypatch.setattr(pointer, '_RENEWAL_SECONDS', 0.003)
  objects = objects_lib.Objects('memory://bucket/renewed')
  lease = pointer.Lease(objects, 'one')
  with lease.renewing():
    for _ in range(1000):
      head, tag = pointer.read(objects)
      if head.number > 3:
        break
      pointer.threading.Event().wait(0.01)
    assert head.number > 3
  number = pointer.read(objects)[0].number
  pointer.threading.Event().wait(0.05)
  assert pointer.read(objects)[0].number == number


@pytest.mark.parametrize(
  'content', [b'', b'[]', b'{}', b'{"checksum": "x"}', b'\xff']
)
def test_a_damaged_pointer_is_an_error(content):
  objects = objects_lib.Objects('memory://bucket/damaged')
  objects.write(pointer.NAME, content)
  with pytest.raises(errors.DataError, match='HEAD.json cannot be read'):
    pointer.read(objects)
