"""Reports on runs, sweeps and datasets: plots and HTML pages from files."""
