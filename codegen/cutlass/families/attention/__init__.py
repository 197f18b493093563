"""Attention in one kernel: its operands, its tiles by mma and by wgmma, its launch."""
