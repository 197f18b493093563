"""Memory plans: lifetimes, offsets, spills, and an explanation in words of what does not fit."""
