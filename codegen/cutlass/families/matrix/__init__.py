"""Convolutions and matrix products: CUTLASS's on the tensor cores, and one of our own on the CUDA cores."""
