"""Types of PyArrow's Parquet files: none."""

from typing import Any

def __getattr__(name: str) -> Any: ...
