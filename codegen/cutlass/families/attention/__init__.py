"""Attention in one kernel: its operands, its tiles, its launch."""
