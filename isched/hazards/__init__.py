"""Which instructions may not change places, and the check of a program that knows nothing of its scheduler."""
