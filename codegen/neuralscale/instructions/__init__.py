"""Streams of NPU instructions built by the templates: operands, reductions, forms of depthwise convolution."""
