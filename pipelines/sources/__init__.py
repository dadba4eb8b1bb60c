"""Sources of raw examples; `registry` lists them."""
