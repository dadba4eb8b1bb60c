"""Reports of one run: summary, pictures, HTML page."""
