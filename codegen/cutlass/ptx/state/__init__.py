"""State of a running batch of CTAs: threads and their paths, registers, memories, barriers."""
