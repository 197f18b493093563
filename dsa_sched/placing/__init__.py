"""The command's work: opening devices, placing a network on them, checking a run against the reference."""
