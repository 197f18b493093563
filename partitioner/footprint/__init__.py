"""Needs of a group of layers for every value when it is cut: bytes, overlaps, peaks, in closed form."""
