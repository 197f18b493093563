"""Orders of instructions: list scheduling over the hazards."""
