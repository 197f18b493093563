"""The NPU's engines: legality in the chip's order, then the arithmetic on views of memory."""
