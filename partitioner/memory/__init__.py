"""What is held when and where: lifetimes, offsets, spills, and what does not fit in words."""
