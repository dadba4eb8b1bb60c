"""Production: nights, drift, gate, releases and lineage."""
