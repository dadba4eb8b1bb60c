"""Client ids as tick labels of an axis, and names made short."""

import os
from collections.abc import Sequence

from matplotlib import axis as axis_lib

# Labels of more clients would overlap.
MAX_NAMES = 40
_LONGEST_ID = 16
_FONT_SIZE = 7


def name(
  axis: axis_lib.Axis,
  client_ids: Sequence[str],
  positions: Sequence[int] | None = None,
) -> None:
  """Labels the positions 0, 1, ... of an axis with client ids.

  Args:
    axis: The axis.
    client_ids: Id at each position.
    positions: Positions to label if there are more than `MAX_NAMES` clients;
      None leaves the axis without ticks then.
  """
  shown = range(len(client_ids))
  if len(client_ids) > MAX_NAMES:
    shown = positions or ()
  names = shortened([client_ids[one] for one in shown])
  axis.set_ticks(list(shown), names)
  axis.set_tick_params(
    length=0,
    labelsize=_FONT_SIZE,
    rotation=90 if isinstance(axis, axis_lib.XAxis) else 0,
  )


def shortened(names: Sequence[str], longest: int = _LONGEST_ID) -> list[str]:
  """Returns ids or names as lines of at most `longest` printable characters.

  If one is longer, `…` replaces what all of them begin or end with.
  """
  texts = [
    ''.join(c if c.isprintable() else '\N{REPLACEMENT CHARACTER}' for c in text)
    for text in names
  ]
  if max(map(len, texts), default=0) <= longest:
    return texts
  if len(texts) > 1:
    texts = _without_common_start(texts)
    texts = [text[::-1] for text in texts]
    texts = [text[::-1] for text in _without_common_start(texts)]
  return [
    text if len(text) <= longest else f'{text[: longest - 1]}…'
    for text in texts
  ]


def _without_common_start(texts: Sequence[str]) -> list[str]:
  start = len(os.path.commonprefix(texts))
  return [f'…{text[start:]}' for text in texts] if start > 1 else [*texts]
