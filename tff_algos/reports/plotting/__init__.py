"""Plotting style, heat maps and HTML templates of all reports."""
