"""Kernels of single layers by wgmma, for chips that have it."""
