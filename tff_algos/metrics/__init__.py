"""Mergeable statistics, cluster recovery and summaries over clients."""
