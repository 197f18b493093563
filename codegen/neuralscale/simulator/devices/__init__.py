"""Shared and memory-mapped devices: the bus, system DMA, barriers, console."""
