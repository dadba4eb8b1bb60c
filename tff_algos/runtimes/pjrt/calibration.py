"""Whether convolutions are vectorized, measured once and kept in a file.

Bits of a result depend on the choice, so a resumed run repeats it.
"""

import json
import pathlib
from collections.abc import Mapping

from absl import logging

from tff_algos.core import durable, errors


class Calibration:
  """What was the faster form of each phase on a kind of device."""

  def __init__(self, path: str, device_kind: str):
    """Reads the file, if there is one.

    Args:
      path: The file; empty for none.
      device_kind: Kind of the devices; choices for others are measured anew.

    Raises:
      ConfigError: If the file is no calibration, or its folder is missing.
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
    try:
      saved = json.loads(self._path.read_text())
      _ = saved['device'], dict(saved['vectorizes'])
    except (OSError, ValueError, LookupError, TypeError) as error:
      raise errors.ConfigError(
        f'config.runtime.pjrt.calibration is {path}, which is no file that a '
        f'calibration wrote ({error!r}): remove it, which measures again, or '
        'name another file'
      ) from None
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
      with durable.replacing(path) as file:
        json.dump(saved, file)
    except OSError as error:
      # The run needs the choices, not the file.
      logging.warning(
        '%s cannot be written: %s. The run goes on; if it is resumed, it '
        'measures again, and results may differ by rounding from there on. '
        'config.runtime.pjrt.calibration can name a file elsewhere.',
        path,
        error,
      )
