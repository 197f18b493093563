"""Kernels of the target: the template that lowers a tile, issue costs, transfers between memories, and tables."""
