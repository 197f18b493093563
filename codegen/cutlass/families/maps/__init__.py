"""Kernels in which a thread computes some neighbours of the output by itself, and those that move elements by tiles."""
