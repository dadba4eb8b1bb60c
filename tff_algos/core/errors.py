"""One exception class for each kind of mistake a person can make.

Every message names the thing, the value that came, what is allowed and what
to do next. The binaries print the message of a `UserError` without a stack
trace; anything else is a bug of ours and keeps its trace.
"""


class UserError(Exception):
  """Something outside the program is wrong and a person can mend it."""


class ConfigError(UserError, ValueError):
  """A config key is unknown, or a value is out of range."""


class DataError(UserError):
  """A federated dataset or a raw source cannot be read as it stands."""


class PartitionError(UserError, ValueError):
  """A partition of examples over clients cannot be met."""


class InfrastructureError(UserError):
  """A disk, a machine or an engine failed; later the same may succeed."""


class StageTypeError(UserError, TypeError):
  """Two stages of a phase do not fit together."""


class CheckpointError(UserError):
  """A checkpoint cannot be written, read or used with this config."""


class WorkdirBusyError(InfrastructureError):
  """Another process is working in this folder."""


class RuntimeFailureError(UserError):
  """A runtime could not start, or died while it ran a phase."""


class ExportError(UserError):
  """A SavedModel bundle cannot be written or does not read back."""


class RequestError(UserError, ValueError):
  """A prediction request is malformed, too large or names nobody we know.

  Attributes:
    status: HTTP status code that says the same, such as 400, 404 or 413.
  """

  def __init__(self, message: str, status: int = 400) -> None:
    super().__init__(message)
    self.status = status
