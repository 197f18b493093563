"""Files of a GPU artifact from launches: nvcc, parameter blocks, the arena, and the list of launches that runners
read."""
