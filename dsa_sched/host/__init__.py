"""Operators that the chip cannot compute, on the host: a network divided into stages of both, compiled, judged."""
