"""Client ids as tick labels of an axis."""

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
  axis.set_ticks(list(shown), [shortened(client_ids[one]) for one in shown])
  axis.set_tick_params(
    length=0,
    labelsize=_FONT_SIZE,
    rotation=90 if axis.axis_name == 'x' else 0,
  )


def shortened(client_id: str) -> str:
  """Returns an id as one line of at most 16 printable characters."""
  text = ''.join(
    c if c.isprintable() else '\N{REPLACEMENT CHARACTER}' for c in client_id
  )
  return text if len(text) <= _LONGEST_ID else f'{text[: _LONGEST_ID - 1]}…'
