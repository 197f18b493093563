"""Post-training quantisation: a network in floating point becomes one with QuantizeLinear and DequantizeLinear."""
