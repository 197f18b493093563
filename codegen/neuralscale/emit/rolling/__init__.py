"""Machine code with loops, shared by the cores: what repeats with constant steps, or on other cores, is written once."""
