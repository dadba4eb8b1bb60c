"""Evaluation: metrics, summaries over clients, cluster recovery."""
