"""Fusion: which layers become a group, and into how many instances a group is cut, by the published rules."""
