"""Reports of a sweep: tables, comparisons, pictures."""
