"""Operators that a file spells out by simpler ones, found again."""
