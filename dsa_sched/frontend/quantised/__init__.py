"""Quantised networks: nodes that quantise and dequantise become integer products and explicit arithmetic on scales."""
