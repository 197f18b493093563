"""Costs of a plan before it is lowered: bytes moved, floors, cycles, micro-batches."""
