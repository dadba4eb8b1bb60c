"""Where raw examples come from; `registry` names them all."""
