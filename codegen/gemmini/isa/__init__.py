"""The instruction set: instructions of the accelerator with the fields of their operands, and those of the core."""
