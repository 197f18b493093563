"""Bit-exact functional simulator of NeuralScale NPU v1 programs (ELF files)."""
