"""Kernels in which several threads compute a line together: softmax, norms, reductions."""
