"""Machine code: loops of instructions as code of the core, and the executable of a program."""
