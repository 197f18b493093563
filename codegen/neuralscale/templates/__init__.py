"""Kernel templates: the instructions that one tile of a layer becomes, one file a family of operators."""
