"""Families of kernels by how they compute: matrices, maps, lines, whole groups of layers; `registry` has them all."""
