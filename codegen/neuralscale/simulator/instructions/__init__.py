"""Instructions executed one at a time: the other scalar instructions and the vector unit."""
