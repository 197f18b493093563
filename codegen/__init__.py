"""Targets: what an instruction set can do, which instructions a tile becomes, machine code, and how to run it."""
