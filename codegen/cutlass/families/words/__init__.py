"""Kernels of operators on integers, which run before and after the planned part of a network."""
