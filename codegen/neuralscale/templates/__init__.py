"""Kernel templates: the instructions that one tile of a layer becomes, with one file per family of operators."""
