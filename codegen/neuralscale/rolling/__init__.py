"""Machine code with loops, shared by the cores: code that repeats in constant steps, or on other cores, is stored
once."""
