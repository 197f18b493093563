"""From a program to machine code: start-up frame, memory map, expansion of long branches and constants."""
