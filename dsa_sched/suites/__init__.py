"""A regression gate: a set of networks compiled, verified and timed, against the run before."""
