"""Kernels for the executor of PTX as CUDA source, and problems for them with numpy's answers in float64."""
