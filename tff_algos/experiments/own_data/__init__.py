"""Own data: a look at raw files, the config that they suggest, conversions."""
