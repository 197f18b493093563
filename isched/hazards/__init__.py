"""Which instructions may not change places, and the check of a program that is independent of its scheduler."""
