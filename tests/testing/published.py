"""Folders published in object stores."""

import pathlib

from tff_algos.stores import objects as objects_lib
from tff_algos.stores import pointer, snapshots


def publish(folder: pathlib.Path, address: str) -> dict[str, str]:
  """Publishes a folder; returns name -> name of its object."""
  objects = objects_lib.Objects(address)
  lease = pointer.Lease(objects, 'test')
  known = snapshots.read(objects, lease.snapshot)
  lease.publish(snapshots.Publisher(objects, folder).upload(known))
  lease.release()
  files = snapshots.read(objects, lease.snapshot).files
  return {name: snapshots.object_name(entry) for name, entry in files.items()}
