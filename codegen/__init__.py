"""Targets: the abilities of an instruction set, the instructions of a tile, machine code, and its execution."""
