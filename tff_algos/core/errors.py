"""Exception classes of user errors, one for each kind.

Every message names the thing, its value, the allowed values and the remedy.
The binaries print the message of a `UserError` without a stack trace; any other
exception is a bug of this project and keeps its trace.
"""

import errno

# Errors of a disk, or a network file system, that its owner can mend.
OF_DISKS = (
  *(errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC),
  *(errno.EPERM, errno.EROFS, errno.ESTALE),
)


class UserError(Exception):
  """An error outside the program, which the user can correct."""


class ConfigError(UserError, ValueError):
  """A config key is unknown, or a value is out of range."""


class DataError(UserError):
  """A federated dataset or a raw source cannot be read as it stands."""


class PartitionError(UserError, ValueError):
  """A partition of examples over clients is not feasible."""


class InfrastructureError(UserError):
  """A disk, a machine or an engine failed; a retry may succeed."""


class StageTypeError(UserError, TypeError):
  """Two stages of a phase do not fit together."""


class CheckpointError(UserError):
  """A checkpoint cannot be read or used with this config."""


class WorkdirBusyError(InfrastructureError):
  """Another process is working in this folder."""


class RuntimeFailureError(UserError):
  """A runtime could not start, or died while it ran a phase."""


class LostProcessError(RuntimeFailureError):
  """A process of a runtime was killed or does not answer; retry later.

  No `InfrastructureError`, which ends a sweep: the next run may do with less
  memory.
  """


class ExportError(UserError):
  """A SavedModel bundle cannot be written or does not read back."""


class NonFiniteError(ExportError):
  """Weights or predictions to export are NaN or infinite."""


class NotApprovedError(UserError):
  """A check of data or models did not pass; a person has to decide.

  Nothing is damaged, and a retry gives the same verdict.
  """


class RequestError(UserError, ValueError):
  """A prediction request is malformed, too large or has an unknown client id.

  Attributes:
    status: HTTP status code of the error, such as 400, 404 or 413.
  """

  def __init__(self, message: str, status: int = 400) -> None:
    super().__init__(message)
    self.status = status


def shorten(text: str) -> str:
  """Returns what a message quotes of a text, at most 500 characters."""
  return text if len(text) <= 500 else f'{text[:500]}...'


def is_of_disk(error: BaseException) -> bool:
  """Returns whether an error is one of `OF_DISKS`."""
  return isinstance(error, OSError) and error.errno in OF_DISKS
