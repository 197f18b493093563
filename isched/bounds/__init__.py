"""Lower bounds that no order of a program can beat."""
