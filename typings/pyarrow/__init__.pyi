"""Types of PyArrow, as far as signatures name them; it brings none."""

from typing import Any, TypeAlias

Array: TypeAlias = Any
Table: TypeAlias = Any

class ArrowException(Exception): ...

def __getattr__(name: str) -> Any: ...
