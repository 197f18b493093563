"""Machine code of a program: start-up frame, memory map, expansion of long branches and constants."""
