"""NVIDIA GPUs by CUTLASS: the compiler of kernels, and the executor of their PTX that needs no GPU."""
