"""Execution engines: runner options and failures of steps."""
