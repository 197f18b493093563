"""State shared in one compilation: the graph, the chip, the target, and everything found out about them."""
