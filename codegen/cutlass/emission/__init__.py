"""From launches to files: nvcc, parameter blocks, the arena, and the list of launches that runners read."""
