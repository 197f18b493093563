"""Machine code with loops, shared by the cores: what repeats in constant steps, or on other cores, stands once."""
