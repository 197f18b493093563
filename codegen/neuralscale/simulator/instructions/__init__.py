"""Instructions executed one at a time: the rest of the scalar set and the vector unit."""
