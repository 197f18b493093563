"""Which template lowers a tile, what issuing it costs, transfers between memories, and tiles lowered once."""
