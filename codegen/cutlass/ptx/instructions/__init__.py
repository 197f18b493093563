"""The table of opcodes: each instruction as a function of the active threads."""
