"""Beam runners: options, failures of steps, lost workers."""
