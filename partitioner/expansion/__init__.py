"""Expansion of a layout into transfers, computation and barriers, in the order in which a program does them."""
