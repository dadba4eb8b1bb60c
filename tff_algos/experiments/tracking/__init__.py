"""Trackers: services in which a team sees its runs."""
