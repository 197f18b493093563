"""What one compilation shares: the graph, the chip, the target, and all that was found out about them."""
