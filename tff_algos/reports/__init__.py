"""Reports: pictures and pages of runs, sweeps and datasets, from files."""
