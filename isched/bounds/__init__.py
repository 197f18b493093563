"""What no order of a program can beat."""
