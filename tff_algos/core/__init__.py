"""Contracts and types of the library; errors, seeds and durable files."""
