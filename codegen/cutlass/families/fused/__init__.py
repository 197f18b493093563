"""Kernels of several layers."""
