"""Orders of sub-graph instances and where values wait: heuristics, beam and window search, an exact solver."""
