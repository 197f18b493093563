"""What is shared and memory-mapped: the bus, system DMA, barriers, console."""
