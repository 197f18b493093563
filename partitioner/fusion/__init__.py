"""Which layers become a group, and into how many instances a group is cut: the published rules."""
