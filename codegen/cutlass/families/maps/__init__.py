"""Kernels in which a thread computes a few neighbours of the output by itself, and kernels that move elements by
tiles."""
