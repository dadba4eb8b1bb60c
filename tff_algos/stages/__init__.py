"""Typed stages of a round: client work, clusters, server."""
