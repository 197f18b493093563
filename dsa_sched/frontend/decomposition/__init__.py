"""Operators written by simpler ones, for targets that do not want them whole."""
