"""Streams of instructions, and the instructions of a program that carry them."""
