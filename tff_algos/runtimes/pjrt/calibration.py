"""Whether convolutions are vectorized, measured once and kept in a file.

Bits of a result depend on the choice, so a resumed run repeats it.
"""

import pathlib
from collections.abc import Mapping

from absl import logging

from tff_algos.core import errors, sealed_json


class Calibration:
  """What was the faster form of each phase on a kind of device."""

  def __init__(self, path: str, device_kind: str):
    """Reads the file, if there is one.

    Args:
      path: The file; empty for none.
      device_kind: Kind of the devices; choices for others are measured anew.

    Raises:
      ConfigError: If the file is none of a calibration, or its folder is
        missing.
      DataError: If the file is damaged.
    """
    self._path = pathlib.Path(path) if path else None
    self._device_kind = device_kind
    self._vectorizes: dict[str, bool] = {}
    if self._path is None:
      return
    if not self._path.parent.is_dir():
      raise errors.ConfigError(
        f'config.runtime.pjrt.calibration is {path}, but {self._path.parent} '
        'is no folder: make it, or name a file in another one'
      )
    if not self._path.exists():
      return
    saved = sealed_json.read(
      self._path,
      'Remove it, which measures again, or name another file in '
      'config.runtime.pjrt.calibration.',
    )
    if saved.keys() != {'device', 'vectorizes'}:
      raise errors.ConfigError(
        f'config.runtime.pjrt.calibration is {path}, which no calibration '
        'wrote: name another file'
      )
    if saved['device'] == device_kind:
      self._vectorizes = saved['vectorizes']
    else:
      logging.warning(
        '%s was measured on %s; measuring again on %s: results differ by '
        'rounding from here on.',
        self._path,
        saved['device'],
        device_kind,
      )

  def get(self, phase_name: str) -> bool | None:
    """Returns whether a phase is vectorized; None if not measured."""
    return self._vectorizes.get(phase_name)

  def choose(self, phase_name: str, seconds: Mapping[bool, float]) -> bool:
    """Keeps the faster form of a phase, logs and returns it.

    Args:
      phase_name: The phase.
      seconds: Whether vectorized -> seconds of a block of clients.
    """
    chosen = seconds[True] < seconds[False]
    logging.info(
      'Phase %r: a block of clients takes %.4f s at once, %.4f s one after the '
      'other; its clients are computed %s.',
      phase_name,
      seconds[True],
      seconds[False],
      'at once' if chosen else 'one after the other',
    )
    self._vectorizes[phase_name] = chosen
    if self._path is not None:
      self._write(self._path)
    return chosen

  def _write(self, path: pathlib.Path) -> None:
    """Writes the file; logs a warning if the disk refuses."""
    saved = {'device': self._device_kind, 'vectorizes': self._vectorizes}
    try:
      sealed_json.write(path, saved)
    except OSError as error:
      # The run needs the choices, not the file.
      logging.warning(
        '%s cannot be written: %s. The run goes on; if it is resumed, it '
        'measures again, and results may differ by rounding from there on. '
        'config.runtime.pjrt.calibration can name a file elsewhere.',
        path,
        error,
      )
