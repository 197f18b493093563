"""Timing of a program or its machine code: recorded and decoded operations for the cycle model."""
