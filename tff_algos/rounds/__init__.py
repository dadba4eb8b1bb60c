"""Rounds: phase types, composition, aggregation, plans, lowering to TFF."""
