"""Programs of the command line: flag parsing and wiring of the library."""
